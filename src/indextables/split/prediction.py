"""Predicts which bytes of the index files a search reads, so that only these are fetched."""

from collections.abc import Iterator

from indextables.split.cold_data import ColdData
from indextables.split.needs import ByteRange, IndexFiles, Needs


def rounds(files: IndexFiles, cold: ColdData, needs: Needs) -> Iterator[list[ByteRange]]:
    """Yield what to fetch, round by round; the ranges of a round must be readable when the next one is asked for.

    Odd but valid indexes are never an error: what cannot be predicted is fetched whole, a field or all files.
    """
    yield [ByteRange(name, 0, size) for name, size in files.sizes().items()]
