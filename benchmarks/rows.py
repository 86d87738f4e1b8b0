"""The rows that every side indexes, scans and searches, and the queries, generated with a fixed seed.

The words of the messages follow Zipf's law: the n-th word is n times rarer than the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TEXT_COLUMN = "message"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("level", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        (TEXT_COLUMN, pa.string()),
    ]
)

_SEED = 20_260_131
_VOCABULARY = 50_000
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]
_FEWEST_WORDS, _MOST_WORDS = 8, 16
_LEVELS = {"DEBUG": 0.3, "INFO": 0.5, "WARN": 0.15, "ERROR": 0.05}
_FIRST_MOMENT_US = 1_700_000_000_000_000
_LONGEST_PAUSE_US = 2_000_000

# Words in nearly every row, or in none, are not realistic queries.
_COMMONEST_RANK = 10
_RAREST_RANK = 5_000
_PHRASE_RANK = 100


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries for a table, by kind."""

    words: Sequence[str]
    both_words: Sequence[str]
    phrases: Sequence[str]

    @property
    def mixed(self) -> list[str]:
        """All of them."""
        return [*self.words, *self.both_words, *self.phrases]


def generate_rows(count: int) -> pa.Table:
    """Generate rows in the order of their time."""
    random = np.random.default_rng((_SEED, count))
    ends = np.cumsum(random.integers(_FEWEST_WORDS, _MOST_WORDS + 1, count))
    frequencies = np.cumsum(1 / np.arange(1, _VOCABULARY + 1))
    ranks = np.searchsorted(frequencies, random.random(ends[-1]) * frequencies[-1])
    words = pa.array(_vocabulary()).take(pa.array(ranks))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    levels = random.choice(len(_LEVELS), count, p=list(_LEVELS.values()))
    moments = _FIRST_MOMENT_US + np.cumsum(random.integers(0, _LONGEST_PAUSE_US, count))
    columns = [
        pa.array(np.arange(count), pa.int64()),
        pa.array(list(_LEVELS)).take(pa.array(levels)),
        pa.array(moments, SCHEMA.field("ts").type),
        pc.binary_join(pa.ListArray.from_arrays(offsets, words), " "),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def generate_queries(count: int, rows: int, *, batch: int = 0) -> Queries:
    """Queries of each kind, with words that a table of this size has; each `batch` has other queries."""
    random = np.random.default_rng((_SEED, count, rows, batch))
    rarest = min(_RAREST_RANK, max(rows // 10, _COMMONEST_RANK + 1))
    lefts = _ranked_words(random, count, rarest)
    rights = _ranked_words(random, count, rarest)
    phrases = zip(*(_ranked_words(random, count, _PHRASE_RANK) for _ in range(2)), strict=True)
    pairs = list(zip(lefts, rights, strict=True))
    return Queries(
        words=[left if number % 2 else f"{left} {right}" for number, (left, right) in enumerate(pairs)],
        both_words=[f"{left} AND {right}" for left, right in pairs],
        phrases=[f'"{left} {right}"' for left, right in phrases],
    )


def word_found_in(count: int, rows: int) -> str:
    """A word in about this many of a table's rows, or the rarest word."""
    words = rows * (_FEWEST_WORDS + _MOST_WORDS) / 2
    rank = words / count / np.sum(1 / np.arange(1, _VOCABULARY + 1))
    return _vocabulary()[min(int(rank), _VOCABULARY - 1)]


def _ranked_words(random: np.random.Generator, count: int, rarest: int) -> list[str]:
    """Words of all frequencies: as many with ranks from 10 to 100 as from 100 to 1,000."""
    ranks: npt.NDArray[np.float64] = np.exp(random.uniform(np.log(_COMMONEST_RANK), np.log(rarest), count))
    vocabulary = _vocabulary()
    return [vocabulary[int(rank)] for rank in ranks]


@lru_cache(maxsize=1)
def _vocabulary() -> Sequence[str]:
    """The words, most frequent first: three syllables each, in random order."""
    base = len(_SYLLABLES)
    numbers = np.random.default_rng(_SEED).permutation(base**3)[:_VOCABULARY].tolist()
    return [
        _SYLLABLES[number // base**2] + _SYLLABLES[number // base % base] + _SYLLABLES[number % base]
        for number in numbers
    ]
