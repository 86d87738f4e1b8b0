"""What people say by the options of a streaming reader: where to start, how much at once, and what to put up with."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from indextables.config.kinds import Boolean, Size
from indextables.errors import InvalidOptionError
from indextables.spark.options import SEARCH, TIMESTAMP_AS_OF, VERSION_AS_OF

STARTING_VERSION: Final = "startingVersion"
STARTING_TIMESTAMP: Final = "startingTimestamp"
LATEST: Final = "latest"
MAX_FILES: Final = "maxFilesPerTrigger"
MAX_BYTES: Final = "maxBytesPerTrigger"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
IGNORE_DELETES: Final = "ignoreDeletes"
IGNORE_CHANGES: Final = "ignoreChanges"
SKIP_CHANGE_COMMITS: Final = "skipChangeCommits"

# A table that nobody has read yet may have a million splits: they do not come in one batch.
DEFAULT_MAX_FILES: Final = 1000

_NOT_FOR_STREAMS: Final[Mapping[str, str]] = {
    VERSION_AS_OF: f"a stream does not stand still at a version; say where it starts with {STARTING_VERSION}",
    TIMESTAMP_AS_OF: f"a stream does not stand still at a moment; say where it starts with {STARTING_TIMESTAMP}",
    SEARCH: "filters do not reach a stream; search with the option query",
}


class ReadLimits(msgspec.Struct, frozen=True):
    """How much one batch may hold; None: no limit. A single file may be larger than the limit in bytes."""

    max_files: int | None = None
    max_bytes: int | None = None


NO_LIMITS: Final = ReadLimits()


class StreamOptions(msgspec.Struct, frozen=True):
    """How a table is followed. Without a start, the stream begins with all rows that are there.

    `starting_version` is None, a number, or "latest". See `change_feed.new_files` for what is ignored and skipped.
    """

    limits: ReadLimits
    starting_version: int | str | None = None
    starting_timestamp: str | None = None
    fails_on_data_loss: bool = True
    ignores_deletes: bool = False
    ignores_changes: bool = False
    skips_changes: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "StreamOptions":
        """The stream's options; keys are in lower case. Raises InvalidOptionError."""
        for name, remedy in _NOT_FOR_STREAMS.items():
            if options.get(name.lower(), "false").lower() != "false":
                raise InvalidOptionError(f"the option {name} is not for streams: {remedy}")
        version, timestamp = options.get(STARTING_VERSION.lower()), options.get(STARTING_TIMESTAMP.lower())
        if version is not None and timestamp is not None:
            raise InvalidOptionError(f"give {STARTING_VERSION} or {STARTING_TIMESTAMP}, not both")
        if timestamp is not None and timestamp.strip().lower() == LATEST:
            version, timestamp = LATEST, None
        return cls(
            limits=_limits(options),
            starting_version=None if version is None else _version(version),
            starting_timestamp=timestamp,
            fails_on_data_loss=_switch(options, FAIL_ON_DATA_LOSS, "true"),
            ignores_deletes=_switch(options, IGNORE_DELETES, "false"),
            ignores_changes=_switch(options, IGNORE_CHANGES, "false"),
            skips_changes=_switch(options, SKIP_CHANGE_COMMITS, "false"),
        )


def _limits(options: Mapping[str, str]) -> ReadLimits:
    files, size = options.get(MAX_FILES.lower()), options.get(MAX_BYTES.lower())
    max_files = None if files is None else _positive(MAX_FILES, files, int)
    max_bytes = None if size is None else _positive(MAX_BYTES, size, Size().read)
    if max_files is None and max_bytes is None:
        max_files = DEFAULT_MAX_FILES
    return ReadLimits(max_files, max_bytes)


def _positive(name: str, text: str, read: Callable[[str], int]) -> int:
    try:
        number = read(text)
    except ValueError as error:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be a positive number") from error
    if number < 1:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be at least 1")
    return number


def _version(text: str) -> int | str:
    if text.strip().lower() == LATEST:
        return LATEST
    try:
        version = int(text)
    except ValueError as error:
        raise InvalidOptionError(
            f"option {STARTING_VERSION} is {text!r}, but must be a version such as 3, or {LATEST}"
        ) from error
    if version < 0:
        raise InvalidOptionError(f"option {STARTING_VERSION} is {version}, but versions start at 0")
    return version


def _switch(options: Mapping[str, str], name: str, default: str) -> bool:
    text = options.get(name.lower(), default)
    try:
        return Boolean().read(text)
    except ValueError as error:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be true or false") from error
