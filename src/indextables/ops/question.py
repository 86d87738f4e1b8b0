"""What is asked of a table's splits, and how each of them understands it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from indextables._caching import LruCache
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidQueryError
from indextables.ops.ordered_parallel import parallel_map
from indextables.ops.splits import open_again, ordered_refs
from indextables.predicates import And, Predicate, all_of, bind, columns_of, to_arrow_filter
from indextables.pruning import match_partitions
from indextables.search.compile import CompiledQuery, compile_query, compile_with_predicate
from indextables.search.nodes import QueryNode
from indextables.search.parser import parse_query
from indextables.search.scope import SearchScope
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_cache import index_cache
from indextables.split.split import Split
from indextables.table import Snapshot

# Of each open split, so many questions are kept as its index understands them.
_KEPT_QUESTIONS: Final = 256

T = TypeVar("T")


class Question(msgspec.Struct, frozen=True):
    """What is asked of every split: a query, or all rows, restricted by a bound predicate."""

    query: QueryNode | None
    where: Predicate | None
    fields: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, snapshot: Snapshot, query: str | None, where: Predicate | None, fields: Sequence[str] = ()
    ) -> "Question":
        """The question in a caller's words. Raises InvalidQueryError and InvalidPredicateError."""
        return cls(
            query=None if query is None else parse_query(query),
            where=None if where is None else bind(where, snapshot.schema),
            fields=tuple(fields),
        )


_ASKED: WeakKeyDictionary[Split, LruCache[Question, CompiledQuery]] = WeakKeyDictionary()


def narrowed(snapshot: Snapshot, question: Question) -> tuple[pa.Table, Question]:
    """The entries that may have matching rows, and the question without what their partition values decide."""
    entries = snapshot.select(question.where).entries
    if question.where is None:
        return entries, question
    return entries, replace(question, where=_undecided(snapshot, entries, question.where))


def open_splits(snapshot: Snapshot, entries: pa.Table, question: Question) -> list[Split]:
    """The splits of entries, in a fixed order. If there are none, raises InvalidQueryError as `check_query` does."""
    if not entries.num_rows:
        check_query(snapshot, question)
    # Equal scores go by the order of the splits, and that of entries depends on what they were read from.
    refs = ordered_refs(snapshot, entries)
    return parallel_map(partial(open_again, snapshot), refs, snapshot.context.settings[READ_PARALLELISM])


def check_query(snapshot: Snapshot, question: Question) -> None:
    """Raise InvalidQueryError for a query that fits no mapping of the table, where there is no split to ask."""
    if question.query is None:
        return
    columns = [snapshot.schema.field(name) for name in snapshot.partition_columns]
    partition = pa.table([pa.nulls(1, column.type) for column in columns], schema=pa.schema(columns))
    refusals: list[InvalidQueryError] = []
    for mapping in _known_mappings(snapshot):
        try:
            compile_query(question.query, SearchScope(mapping, snapshot.schema, partition, question.fields))
        except InvalidQueryError as error:
            refusals.append(error)
        else:
            return
    raise refusals[0]


def _known_mappings(snapshot: Snapshot) -> list[DocMapping]:
    """The mappings of all splits that the table ever had, or that of the first split to come."""
    registered = [DocMapping.from_json(each) for each in snapshot.header.schema_registry.values()]
    columns = (snapshot.schema, snapshot.partition_columns)
    return registered or [DocMapping.from_schema(*columns, snapshot.context.settings)]


def on_each(snapshot: Snapshot, splits: Sequence[Split], function: Callable[[Split], T]) -> list[T]:
    """The results of a function for all splits, in their order, computed in parallel."""
    return parallel_map(function, splits, snapshot.context.settings[READ_PARALLELISM])


def ask_split(snapshot: Snapshot, question: Question, split: Split) -> CompiledQuery:
    """A question as the index of a split understands it. Raises InvalidQueryError."""
    index = split.index(index_cache(snapshot.context.settings))
    lately = _ASKED.get(split)
    if lately is None:
        lately = _ASKED.setdefault(split, LruCache(_KEPT_QUESTIONS))
    asked = lately.get(question)
    if asked is None or asked.index is not index:
        scope = SearchScope(split.mapping, snapshot.schema, split.partition_row, question.fields)
        asked = compile_with_predicate(index, scope, question.query, question.where)
        lately.put(question, asked)
    return asked


def matching(split: Split, rows: NDArray[np.int64], predicate: Predicate) -> NDArray[np.int64]:
    """Those of the rows for which a bound predicate is true."""
    if not len(rows):
        return rows
    names = sorted(columns_of(predicate))
    number = "~".join(["row", *names])  # longer than any of the names
    numbered = split.take(rows, names).append_column(number, pa.array(rows))
    matching: NDArray[np.int64] = numbered.filter(to_arrow_filter(predicate))[number].to_numpy()
    return matching


def _undecided(snapshot: Snapshot, entries: pa.Table, where: Predicate | None) -> Predicate | None:
    """What partition values leave open of a predicate by which these entries were selected."""
    if where is None:
        return None
    conjuncts = where.operands if isinstance(where, And) else (where,)
    partition_columns = frozenset(snapshot.partition_columns)
    left = [
        conjunct
        for conjunct in conjuncts
        if not columns_of(conjunct) <= partition_columns or not _holds_for_all(snapshot, entries, conjunct)
    ]
    return all_of(left) if left else None


def _holds_for_all(snapshot: Snapshot, entries: pa.Table, predicate: Predicate) -> bool:
    matches = match_partitions(entries, predicate, snapshot.schema, snapshot.partition_columns)
    return not matches.null_count and bool(pc.all(matches).as_py())
