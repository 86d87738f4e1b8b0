"""Avro, by column: types, containers, encoding and decoding. Knows nothing of states or manifests."""
