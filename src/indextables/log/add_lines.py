"""File entries as add actions: their lines in a checkpoint or a version file."""

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError
from indextables.log.json_lines import action_lines


def add_lines(entries: pa.Table) -> bytes:
    """File entries as add actions, one a line."""
    if not entries.num_rows:
        return b""
    known, unknown = entries.drop_columns(["unknownFields"]), entries["unknownFields"]
    if unknown.null_count == len(unknown):
        return action_lines("add", known)
    has_unknown = unknown.is_valid()
    plain_lines = action_lines("add", known.filter(pc.invert(has_unknown)))
    other_lines = action_lines("add", known.filter(has_unknown)).splitlines()
    return plain_lines + b"".join(map(_with_unknown, other_lines, unknown.drop_null().to_pylist()))


def _with_unknown(line: bytes, unknown: str) -> bytes:
    """An add action with the fields that it was read with. What we know of it has the last word."""
    fields = msgspec.json.decode(line, type=dict[str, dict[str, msgspec.Raw]])["add"]
    try:
        others = msgspec.json.decode(unknown, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LogCorruptedError(
            f"{bytes(fields['path']).decode()}: its unknown fields are not a JSON object ({error})"
        ) from error
    return msgspec.json.encode({"add": {**others, **fields}}) + b"\n"
