"""A table with deletes, updates and upserts against a dictionary of rows, at every version and through every reader."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from indextables import IndexTable, expr

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("words", pa.string()), ("price", pa.float64())]
)
WORDS = ("red", "green", "blue")
DAYS = ("a", "b")

Row = tuple[int, str, str, float | None]


def as_table(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([], [], [], [])
    return pa.table(dict(zip(SCHEMA.names, map(list, columns), strict=True)), schema=SCHEMA)


_ROWS = st.lists(
    st.tuples(
        st.sampled_from(DAYS),
        st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
        st.none() | st.integers(-8, 8).map(lambda number: number / 4),
    ),
    min_size=1,
    max_size=12,
)


class RowModel(RuleBasedStateMachine):
    """Every version of the table has the rows that the dictionary had."""

    @initialize(
        mode=st.sampled_from(["vectors", "rewrite"]), form=st.sampled_from(["avro", "json", "parquet"])
    )
    def create(self, mode, form):
        self.folder = tempfile.mkdtemp(prefix="row-model-")
        options = {"spark.indextables.delete.mode": mode, "spark.indextables.state.format": form}
        self.table = IndexTable.create(
            str(Path(self.folder) / "t"), SCHEMA, partition_by=["day"], text=["words"], options=options
        )
        self.rows: dict[int, Row] = {}
        self.versions: dict[int, dict[int, Row]] = {0: {}}
        self.next_id = 0

    @rule(rows=_ROWS)
    def append(self, rows):
        new = [(self.next_id + place, *row) for place, row in enumerate(rows)]
        self.next_id += len(new)
        self.table.append(as_table(new))
        self._now({**self.rows, **{row[0]: row for row in new}})

    @rule(low=st.integers(0, 40), count=st.integers(1, 12))
    def delete_a_range(self, low, count):
        self.table.delete(where=f"id BETWEEN {low} AND {low + count - 1}")
        self._keep(lambda row: not low <= row[0] < low + count)

    @rule(word=st.sampled_from(WORDS))
    def delete_by_a_query(self, word):
        self.table.delete(query=word)
        self._keep(lambda row: word not in row[2].split())

    @rule(word=st.sampled_from(WORDS), limit=st.integers(-8, 8))
    def delete_by_both(self, word, limit):
        self.table.delete(where=f"price < {limit / 4}", query=word)
        self._keep(lambda row: not (word in row[2].split() and row[3] is not None and row[3] < limit / 4))

    @rule()
    def delete_rows_without_a_price(self):
        self.table.delete(where="price IS NULL")
        self._keep(lambda row: row[3] is not None)

    @rule(day=st.sampled_from(DAYS))
    def delete_a_day(self, day):
        self.table.delete(where=f"day = '{day}'")
        self._keep(lambda row: row[1] != day)

    @rule(low=st.integers(0, 40), count=st.integers(1, 12), day=st.sampled_from(DAYS))
    def update_a_range(self, low, count, day):
        """Rows get other words, and move to another partition."""
        self.table.update({"day": day, "words": "blue red"}, where=f"id BETWEEN {low} AND {low + count - 1}")
        self._change(lambda row: (row[0], day, "blue red", row[3]) if low <= row[0] < low + count else row)

    @rule(word=st.sampled_from(WORDS))
    def update_by_a_query(self, word):
        self.table.update({"price": expr("price * 2 + 0.25")}, query=word)
        self._change(
            lambda row: (
                (*row[:3], row[3] * 2 + 0.25) if word in row[2].split() and row[3] is not None else row
            )
        )

    @rule(first=st.integers(0, 40), rows=_ROWS, insert=st.booleans())
    def upsert(self, first, rows, insert):
        """Keys that are there and keys that are not; later appends skip the keys that it inserts."""
        new = {first + place: (first + place, *row) for place, row in enumerate(rows)}
        self.table.merge(as_table(list(new.values())), on="id", when_not_matched_insert=insert)
        changed = {number: row for number, row in new.items() if insert or number in self.rows}
        self.next_id = max(self.next_id, *(number + 1 for number in new))
        self._now({**self.rows, **changed})

    @rule(first=st.integers(0, 40), rows=_ROWS, day=st.sampled_from(DAYS))
    def upsert_with_conditions(self, first, rows, day):
        """Matched rows of a day go, others take the price only, and only rows with words are inserted."""
        new = {first + place: (first + place, *row) for place, row in enumerate(rows)}
        self.table.merge(
            as_table(list(new.values())),
            on=["id"],
            when_matched_delete=f"target.day = '{day}'",
            when_matched_update={"price": expr("source.price")},
            when_not_matched_insert="words <> ''",
        )
        self.next_id = max(self.next_id, *(number + 1 for number in new))
        kept = {number: row for number, row in self.rows.items() if number not in new or row[1] != day}
        updated = {number: (*row[:3], new[number][3]) for number, row in kept.items() if number in new}
        inserted = {number: row for number, row in new.items() if number not in self.rows and row[2]}
        self._now({**kept, **updated, **inserted})

    @rule()
    def merge(self):
        self.table.merge_splits()
        self._now(self.rows)

    @rule()
    def checkpoint(self):
        self.table.checkpoint()

    @rule(data=st.data())
    def restore(self, data):
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.table.restore(version=version)
        self._now(self.versions[version])

    @rule(data=st.data())
    def travel(self, data):
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self._check(IndexTable(str(Path(self.folder) / "t"), version=version), self.versions[version])

    @invariant()
    def the_newest_version_has_the_rows(self):
        self._check(self.table, self.rows)

    def teardown(self):
        table = IndexTable(str(Path(self.folder) / "t"))
        self._check(table, self.rows)
        assert table.fsck(deep=True).is_clean
        shutil.rmtree(self.folder)

    def _keep(self, is_kept):
        self._now({number: row for number, row in self.rows.items() if is_kept(row)})

    def _change(self, changed):
        self._now({number: changed(row) for number, row in self.rows.items()})

    def _now(self, rows):
        self.rows = dict(rows)
        self.versions[self.table.version] = self.rows

    def _check(self, table: IndexTable, rows: dict[int, Row]) -> None:
        found = table.to_arrow().to_pylist()
        assert sorted(map(repr, (tuple(row.values()) for row in found))) == sorted(map(repr, rows.values()))
        assert table.num_rows == table.count() == len(rows)
        for word in WORDS:
            matching = {number for number, row in rows.items() if word in row[2].split()}
            hits = table.search(word, columns=["id"], limit=1000)["id"].to_pylist()
            assert set(hits) == matching
            assert len(hits) == table.count(word) == len(matching)
            best = table.search(word, columns=["id"], limit=2)
            assert best.num_rows == min(2, len(matching))
        dear = [row for row in rows.values() if row[3] is not None and row[3] >= 0.5]
        assert table.count(where="price >= 0.5") == len(dear)
        days = {row["day"]: row["count"] for row in table.aggregate(["count"], by="day").to_pylist()}
        assert days == Counter(row[1] for row in rows.values())
        [total] = table.aggregate(["count(price)", "sum(id)", "max(id)"]).to_pylist()
        assert total["count(price)"] == sum(row[3] is not None for row in rows.values())
        assert total["max(id)"] == max(rows, default=None)


RowModel.TestCase.settings = settings(max_examples=14, stateful_step_count=10, deadline=None)
test_rows_agree_with_a_dictionary = RowModel.TestCase
