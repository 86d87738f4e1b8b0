"""How a state manifest names its manifests, and which key each name stands for.

Three forms occur: `manifests/manifest-<id>.avro` (shared by states, the one that we write), the same below
`state-v<version>/`, and the bare file name, relative to the directory of the state itself.
"""

import secrets

from indextables.errors import ManifestCorruptedError, UnsafePathError
from indextables.log.paths import LOG_PREFIX, SHARED_MANIFEST_PATH, ManifestFile, parse_log_path, state_dir
from indextables.storage.keys import validate_key

# Names are random, and nothing else keeps two writers apart: 128 bits never meet.
_ID_BYTES = 16


def new_manifest_path() -> str:
    """A path for a manifest to be written, as a state manifest refers to it."""
    name = f"manifest-{secrets.token_hex(_ID_BYTES)}.avro"
    return f"{SHARED_MANIFEST_PATH}{name}"


def manifest_key(path: str, state_version: int) -> str:
    """The key, below the table's root, of a manifest that the state at `state_version` names.

    Raises ManifestCorruptedError for a path of any other form: nothing outside the log's own folders is ever
    read or deleted on the word of a state manifest.
    """
    relative = path if "/" in path else f"{state_dir(state_version)}/{path}"
    key = f"{LOG_PREFIX}{relative}"
    try:
        validate_key(key)
    except UnsafePathError as error:
        raise _refused(path, state_version) from error
    if not isinstance(parse_log_path(key), ManifestFile):
        raise _refused(path, state_version)
    return key


def normalized_manifest_path(path: str, state_version: int) -> str:
    """The same manifest, named so that states of other versions can refer to it. Raises as `manifest_key`."""
    return manifest_key(path, state_version).removeprefix(LOG_PREFIX)


def _refused(path: str, state_version: int) -> ManifestCorruptedError:
    return ManifestCorruptedError(
        f"the state of version {state_version} refers to {path[:200]!r}, which is no manifest of this log"
    )
