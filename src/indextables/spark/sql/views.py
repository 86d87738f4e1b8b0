"""Temporary views that `spark.sql` creates over tables of ours.

Spark keeps the text of such a view, in which it could not find our tables again. So the view is created from a
DataFrame, and its text is remembered beside it: a search of the view replaces the view by its text.
"""

import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from sqlglot import Token, TokenType, exp

from indextables.errors import InvalidStatementError
from indextables.spark.sql.operators import sql_error

# The name by which the text of a view refers to a table, whatever its own name means later.
TABLE_NAME: Final = "__indextables_table_"

GLOBAL: Final = "global_temp."

_QUERY_STARTS: Final = frozenset({"select", "with", "from", "values", "table", "("})


class NewView(msgspec.Struct, frozen=True):
    """A statement CREATE VIEW … AS: `start` is where its query starts."""

    name: str
    columns: tuple[str, ...]
    start: int
    is_global: bool
    is_replacing: bool

    @classmethod
    def of(cls, text: str, tokens: Sequence[Token], tree: exp.Create) -> "NewView":
        """Read the statement. Raises InvalidStatementError for a view that is not temporary."""
        properties = tree.args.get("properties")
        kinds = {type(each) for each in properties.expressions} if properties is not None else set()
        start = _query_start(tokens)
        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        if exp.TemporaryProperty not in kinds:
            raise sql_error(
                text,
                tokens[0].start,
                tokens[0].end + 1,
                f"a permanent view cannot search, or read an IndexTables table by its path, because other sessions "
                f"could not read it; write CREATE TEMPORARY VIEW {table.name} AS …",
            )
        columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
        return cls(
            table.name,
            tuple(column.name for column in columns),
            start,
            exp.GlobalProperty in kinds,
            bool(tree.args.get("replace")),
        )

    @property
    def key(self) -> str:
        """The name by which queries find the view."""
        return f"{GLOBAL}{self.name}" if self.is_global else self.name

    def create(self, frame: DataFrame) -> None:
        """Create the view from the result of its query. Raises what Spark raises if it exists already."""
        named = frame.toDF(*self.columns) if self.columns else frame
        if self.is_global:
            (named.createOrReplaceGlobalTempView if self.is_replacing else named.createGlobalTempView)(
                self.name
            )
        else:
            (named.createOrReplaceTempView if self.is_replacing else named.createTempView)(self.name)


def _query_start(tokens: Sequence[Token]) -> int:
    """Where the query after AS starts."""
    for token, following in pairwise(tokens):
        if token.token_type is TokenType.ALIAS and following.text.lower() in _QUERY_STARTS:
            return int(following.start)
    raise InvalidStatementError("a view needs a query: CREATE TEMPORARY VIEW v AS SELECT …")


def new_table_name() -> str:
    """A name for a table in the text of a view."""
    return f"{TABLE_NAME}{uuid.uuid4().hex}"


def created_view(tokens: Sequence[Token]) -> str | None:
    """The name of the view that a statement creates or changes."""
    words = [token.text.lower() for token in tokens]
    if not words or words[0] not in ("create", "alter") or "view" not in words:
        return None
    start = words.index("view") + 1
    if words[start : start + 3] == ["if", "not", "exists"]:
        start += 3
    name = "".join(token.text for token in _name_from(tokens[start:]))
    return f"{GLOBAL}{name}" if "global" in words[:start] else name


def _name_from(tokens: Sequence[Token]) -> Sequence[Token]:
    end = 1
    while end + 1 < len(tokens) and tokens[end].token_type is TokenType.DOT:
        end += 2
    return tokens[:end]
