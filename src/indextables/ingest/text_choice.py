"""Which string columns of a new table are full text, judged by a sample of their values."""

import re
from collections.abc import Collection
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS: Final = 5_000

_TELLING_NAMES: Final = re.compile(
    r"(^|_)(message|msg|text|body|content|description|title|comment|summary|subject|abstract|review|note|notes|log|line"
    r"|stack|stacktrace|exception|error|question|answer)$",
    re.IGNORECASE,
)
# Values of this many words are prose; values of fewer are often names.
_PROSE_WORDS: Final = 3.0
_FEW_WORDS: Final = 1.5


class _Column(msgspec.Struct, frozen=True):
    name: str
    mean_words: float
    is_telling: bool

    @property
    def is_text(self) -> bool:
        return self.mean_words >= _PROSE_WORDS or (self.is_telling and self.mean_words >= _FEW_WORDS)


def choose_text_columns(sample: pa.Table, exact: Collection[str]) -> list[str]:
    """The columns that hold text, in the order of the table; the best guess if there is none, and no guess at all if
    no string column has values of more than one word or a telling name.

    Columns in `exact` are left out.
    """
    columns = [
        _judged(field.name, sample[field.name])
        for field in sample.schema
        if pa.types.is_string(field.type) and field.name not in exact
    ]
    chosen = [column.name for column in columns if column.is_text]
    if chosen:
        return chosen
    telling = [column for column in columns if column.is_telling and column.mean_words]
    wordy = [column for column in columns if column.mean_words >= _FEW_WORDS]
    best = max(telling or wordy, key=lambda column: column.mean_words, default=None)
    return [] if best is None else [best.name]


def _judged(name: str, values: pa.ChunkedArray) -> _Column:
    words = pc.count_substring_regex(pc.utf8_trim_whitespace(values.drop_null()), r"\s+[^\s]")
    mean = pc.mean(words).as_py()
    return _Column(name, 0.0 if mean is None else mean + 1.0, bool(_TELLING_NAMES.search(name)))
