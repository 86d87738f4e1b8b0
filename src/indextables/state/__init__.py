"""The Avro state: manifests, which hold file entries, and state manifests, which list the current manifests."""
