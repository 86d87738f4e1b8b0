"""Partition bounds in our states, as readers see them: ours compares typed values, the JVM compares texts."""

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from indextables.log.fields import STRING_MAP
from indextables.log.paths import LOG_PREFIX, state_manifest_key
from indextables.pruning import keys_sorted_like_text
from indextables.schema import TableShape
from support.manifest_samples import fastavro_rows
from support.state_tables import TableBuilder, numbered, split, state_of

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def kept_on_the_jvm(
    bounds: dict[str, dict[str, str | None]] | None, column: str, sign: str, value: str
) -> bool:
    """Whether the JVM reads a manifest: it compares the bounds and the literal as texts."""
    found = (bounds or {}).get(column, {})
    least, greatest = found.get("min"), found.get("max")
    if sign in ("=", ">", ">=") and greatest is not None:
        compare = OPERATORS[">="] if sign == "=" else OPERATORS[sign]
        if not compare(greatest, value):
            return False
    if sign in ("=", "<", "<=") and least is not None:
        compare = OPERATORS["<="] if sign == "=" else OPERATORS[sign]
        if not compare(least, value):
            return False
    return True


def manifests_on_disk(tables: TableBuilder, version: int) -> list[dict[str, Any]]:
    (state,) = fastavro_rows(Path(tables.path, state_manifest_key(version)).read_bytes())
    manifests: list[dict[str, Any]] = state["manifests"]
    return manifests


def days_of(tables: TableBuilder, manifest: dict[str, Any]) -> list[int]:
    rows = fastavro_rows(Path(tables.path, LOG_PREFIX, manifest["path"]).read_bytes())
    return [int(row["partitionValues"]["day"]) for row in rows]


@pytest.fixture
def tables(builder) -> TableBuilder:
    """Manifests of the days 2 to 10, 10 to 12, 7, and -3 to 1."""
    tables = builder("region", "day")
    table = tables.create()
    numbers = iter(range(100))
    for days in (range(2, 11), range(10, 13), (7,), range(-3, 2)):
        table.commit(adds=[split(next(numbers), region="eu", day=str(day)) for day in days])
        table.checkpoint()
    return tables


def test_no_text_comparison_skips_a_manifest_with_matching_integers(tables):
    manifests = manifests_on_disk(tables, 4)
    assert len(manifests) == 4
    for manifest in manifests:
        days = days_of(tables, manifest)
        for sign, compare in OPERATORS.items():
            for literal in range(-15, 25):
                if any(compare(day, literal) for day in days):
                    bounds = manifest["partitionBounds"]
                    assert kept_on_the_jvm(bounds, "day", sign, str(literal)), (days, sign, literal)


def test_our_own_pruning_by_integers_stays_as_sharp(tables):
    table = tables.open()
    for where, kept in {"day = 5": 1, "day > 10": 1, "day > 3": 3, "day < 2": 1, "day = 100": 0}.items():
        found = table.select_files(where, ["path"])
        assert (where, found.manifests - found.manifests_skipped) == (where, kept)


def test_bounds_that_sort_like_texts_are_shared(tables):
    for manifest in manifests_on_disk(tables, 4):
        assert manifest["partitionBounds"] == {"region": {"min": "eu", "max": "eu"}}
        assert set(manifest["typedBounds"]) == {"day"}
    assert all(set(info.bounds) == {"region", "day"} for info in state_of(tables.open()).manifests)


@pytest.mark.parametrize(
    ("data_type", "texts", "is_shared"),
    [
        (pa.string(), ["a", "é", None], True),
        (pa.string(), ["a", "\uffff"], False),
        (pa.string(), ["a", "\U00010000"], False),
        (pa.date32(), ["2024-01-31", "2024-02-01", None], True),
        (pa.date32(), ["12024-01-31"], False),
        (pa.bool_(), ["true", "false"], True),
        (pa.bool_(), ["TRUE"], False),
        (pa.int8(), ["7"], False),
        (pa.int64(), [None], False),
        (pa.float64(), ["1.5"], False),
        (pa.decimal128(5, 2), ["1.50"], False),
        (pa.timestamp("us", tz="UTC"), ["2024-01-01 00:00:00"], False),
    ],
)
def test_what_sorts_like_its_text(data_type, texts, is_shared):
    shape = TableShape(pa.schema([("p", data_type), ("x", pa.string())]), ("p",))
    values = pa.array([[] if text is None else [("p", text)] for text in texts], STRING_MAP)
    assert keys_sorted_like_text(values, shape) == ({"p"} if is_shared else set())


def test_a_table_of_one_integer_column_shares_no_bounds(builder):
    tables = builder("day")
    tables.create().commit(adds=[split(n, day=str(n)) for n in range(20)])
    tables.open().checkpoint()
    (manifest,) = manifests_on_disk(tables, 1)
    assert not manifest["partitionBounds"]
    assert tables.open().select_files("day = 5", ["path"]).entries["path"].to_pylist() == numbered([5])
