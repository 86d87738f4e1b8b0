"""The file that makes a state directory a state."""

from indextables.errors import ManifestCorruptedError
from indextables.log.paths import StateManifestFile, parse_log_path
from indextables.log.segment import Base
from indextables.state.state_manifest import StateManifest
from indextables.state.state_manifest_codec import decode_json_state_manifest, decode_state_manifest
from indextables.storage import ObjectStore


def read_state_manifest(store: ObjectStore, base: Base) -> StateManifest:
    """A state manifest, in either format. Raises ManifestCorruptedError if it is damaged or mislabelled."""
    name = f"{store.url}/{base.meta.key}"
    path = parse_log_path(base.meta.key)
    data = store.get(base.meta.key)
    is_avro = isinstance(path, StateManifestFile) and path.is_avro
    manifest = decode_state_manifest(data, name) if is_avro else decode_json_state_manifest(data, name)
    if manifest.state_version != base.version:
        raise ManifestCorruptedError(f"{name}: holds the state of version {manifest.state_version}")
    return manifest
