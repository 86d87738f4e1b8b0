"""The Avro state: manifests of file entries, and state manifests that say which of them are current."""
