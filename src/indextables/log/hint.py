"""`_last_checkpoint`: a hint at the newest checkpoint or state.

Never trusted until it is matched: a missing, corrupt or stale hint costs time, never correctness.
"""

import logging
from typing import Final

import msgspec

from indextables.errors import ObjectNotFoundError
from indextables.log.paths import LAST_CHECKPOINT_KEY, MAX_VERSION
from indextables.log.segment import BaseFormat
from indextables.storage import ObjectStore

logger = logging.getLogger(__name__)

# More commits than any table has seen: a hint with a larger number is damaged.
_PLAUSIBLE_VERSION: Final = 10**12

_PARTS_OF_JSON: Final = "json-multipart"


class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `_last_checkpoint`; `size` counts actions, `size_in_bytes` the bytes of live files."""

    version: int
    size: int = 0
    size_in_bytes: int = 0
    num_files: int = 0
    created_time: int = 0
    parts: int | None = None
    checkpoint_id: str | None = None
    format: str | None = None
    state_dir: str | None = None
    protocol_version: int | None = None

    @property
    def format_name(self) -> str:
        """The format of the checkpoint that it names: older writers, which knew only one, do not say."""
        return self.format or ("json" if self.checkpoint_id is None else _PARTS_OF_JSON)

    @property
    def base_format(self) -> BaseFormat | None:
        """What kind of checkpoint it names; None for one that we do not know."""
        name = self.format_name.replace(_PARTS_OF_JSON, "json")
        return next((kind for kind in BaseFormat if kind.value == name), None)

    def bears_witness_beyond(self, version: int) -> bool:
        """Whether there must have been a newer version than this one: a hint follows the checkpoint that it names."""
        return version < self.version <= _PLAUSIBLE_VERSION


def read_hint(store: ObjectStore) -> LastCheckpoint | None:
    """The hint, or None if there is none that makes sense."""
    try:
        data = store.get(LAST_CHECKPOINT_KEY)
    except ObjectNotFoundError:
        return None
    try:
        hint = msgspec.json.decode(data, type=LastCheckpoint, strict=False)
    except (ValueError, RecursionError) as error:
        logger.warning("%s/%s is not readable and is ignored (%s)", store.url, LAST_CHECKPOINT_KEY, error)
        return None
    # A number that no version can have would keep the hint from ever moving on.
    return hint if 0 <= hint.version <= MAX_VERSION else None


def advance_hint(store: ObjectStore, hint: LastCheckpoint) -> None:
    """Point the hint at a newer checkpoint. It never moves backwards."""
    current = read_hint(store)
    if current is not None and current.version > hint.version:
        return
    store.put(LAST_CHECKPOINT_KEY, msgspec.json.encode(hint))
