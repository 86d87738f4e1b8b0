"""Columnar Avro: types, containers, encoding and decoding. Independent of states and manifests."""
