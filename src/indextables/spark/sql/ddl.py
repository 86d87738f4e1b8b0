"""CREATE TABLE, INSERT and CREATE TEMPORARY VIEW … USING, read from the tokens of a statement."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql.types import StructType
from sqlglot import Token, TokenType

from indextables.errors import InvalidStatementError
from indextables.spark.options import PATH
from indextables.spark.source import FORMATS
from indextables.spark.sql.names import Insertion, NewTable
from indextables.spark.sql.operators import sql_error
from indextables.spark.sql.views import NewView

_QUERY_STARTS: Final = frozenset({"select", "with", "from", "values", "table"})
_CLAUSES: Final = frozenset(
    {"using", "options", "partitioned", "location", "tblproperties", "comment", "as", "clustered", "cluster"}
)


class CreateTable(msgspec.Struct, frozen=True):
    """A statement CREATE TABLE … USING indextables.

    `name_end` is where the name of the table ends, and `columns_end` where the list of columns does, if there is one.
    `query` is where AS and the query start; None without AS.
    """

    table: NewTable
    name_end: int
    columns_end: int
    query: tuple[int, int] | None


class Insert(msgspec.Struct, frozen=True):
    """A statement INSERT; its query starts at `query_start`."""

    insertion: Insertion
    query_start: int


def read_create_table(
    text: str, tokens: Sequence[Token], read_literal: Callable[[str], Any]
) -> CreateTable | None:
    """Read a statement that creates a table of ours; None for any other statement."""
    reader = _Reader(text, tokens, read_literal)
    if not reader.take("create", "table"):
        if reader.take("create", "or", "replace", "table") and reader.creates_ours():
            raise reader.error("CREATE OR REPLACE TABLE does not work for IndexTables; drop the table first")
        return None
    if not reader.creates_ours():
        return None
    is_optional = reader.take("if", "not", "exists")
    parts = reader.name()
    name_end = reader.end()
    columns = reader.columns() if reader.is_at("(") else None
    columns_end = reader.end()
    partition_by: tuple[str, ...] | None = None
    options: dict[str, str] = {}
    location: str | None = None
    while not reader.is_at_end():
        if reader.take("using"):
            reader.name()
        elif reader.take("partitioned", "by"):
            partition_by = reader.names()
        elif reader.take("options"):
            options |= reader.options()
        elif reader.take("tblproperties"):
            properties = reader.options()
            options |= {
                key: value
                for key, value in properties.items()
                if key.lower().startswith("spark.indextables.")
            }
        elif reader.take("location"):
            location = str(reader.literal())
        elif reader.take("comment"):
            reader.literal()
        elif reader.is_at("as"):
            break
        else:
            raise reader.error("this clause does not work for IndexTables")
    as_start = None if reader.is_at_end() else reader.position()
    query = None if as_start is None or not reader.take("as") else (as_start, reader.position())
    path = next((options.pop(key) for key in list(options) if key.lower() == PATH), None)
    table = NewTable(parts, columns, partition_by, options, location or path, is_optional)
    if query is not None and columns is not None:
        raise reader.error("the columns of CREATE TABLE … AS are those of its query; omit the list")
    return CreateTable(table, name_end, columns_end, query)


def read_insert(
    text: str, tokens: Sequence[Token], is_ours: Callable[[tuple[str, ...]], bool]
) -> Insert | None:
    """Read an INSERT into a table of ours; None for any other statement."""
    reader = _Reader(text, tokens, str)
    if not reader.take("insert"):
        return None
    is_overwrite = reader.take("overwrite")
    if not is_overwrite and not reader.take("into"):
        return None
    reader.take("table")
    if reader.is_at("directory") or reader.is_at("local"):
        return None
    parts = reader.name()
    if not is_ours(parts):
        return None
    partition = reader.partition() if reader.take("partition") else {}
    is_by_name = reader.take("by", "name")
    columns = reader.names() if reader.is_at("(") and not reader.is_at_query(1) else None
    if not reader.is_at_query(0):
        raise reader.error("this clause of INSERT does not work for IndexTables")
    return Insert(Insertion(parts, is_overwrite, columns, is_by_name, partition), reader.position())


class ViewOfTable(msgspec.Struct, frozen=True):
    """A statement CREATE TEMPORARY VIEW … USING indextables OPTIONS (…)."""

    view: NewView
    options: dict[str, str]


def read_view_of_table(
    text: str, tokens: Sequence[Token], read_literal: Callable[[str], Any]
) -> ViewOfTable | None:
    """Read a statement that shows a table of ours by its options; None for any other, and with a list of columns."""
    reader = _Reader(text, tokens, read_literal)
    if not reader.take("create"):
        return None
    is_replacing, is_global = reader.take("or", "replace"), reader.take("global")
    if not (reader.take("temporary", "view") or reader.take("temp", "view")) or not reader.creates_ours():
        return None
    name = reader.name()[-1]
    if not reader.take("using"):
        return None
    reader.name()
    if not reader.take("options"):
        return None
    return ViewOfTable(NewView(name, (), 0, is_global, is_replacing), reader.options())


class _Word(msgspec.Struct, frozen=True):
    """A word, a literal or a sign; `end` is exclusive."""

    text: str
    start: int
    end: int


def _words(text: str, token: Token) -> list[_Word]:
    """The words of a token: some keywords, such as PARTITIONED BY, are one token."""
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING):
        return [_Word(token.text, token.start, token.end + 1)]
    written = text[token.start : token.end + 1]
    return [
        _Word(each[0], token.start + each.start(), token.start + each.end())
        for each in re.finditer(r"\S+", written)
    ]


class _Reader:
    """Reads the tokens of a statement, one after another."""

    def __init__(self, text: str, tokens: Sequence[Token], read_literal: Callable[[str], Any]) -> None:
        self._text = text
        self._tokens = [
            word
            for token in tokens
            if token.token_type is not TokenType.SEMICOLON
            for word in _words(text, token)
        ]
        self._read_literal = read_literal
        self._next = 0

    def is_at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def is_at(self, word: str) -> bool:
        return not self.is_at_end() and self._tokens[self._next].text.lower() == word

    def is_at_query(self, offset: int) -> bool:
        """Whether a query starts here, in parentheses or not."""
        words = [token.text.lower() for token in self._tokens[self._next + offset : self._next + offset + 2]]
        return bool(words) and (words[0] in _QUERY_STARTS or (words[0] == "(" and words[-1] in _QUERY_STARTS))

    def take(self, *words: str) -> bool:
        """Go past these words if they come next."""
        found = [token.text.lower() for token in self._tokens[self._next : self._next + len(words)]]
        if found != list(words):
            return False
        self._next += len(words)
        return True

    def creates_ours(self) -> bool:
        """Whether the statement has a provider of ours."""
        words = [token.text.lower() for token in self._tokens]
        for index, word in enumerate(words):
            if word == "using":
                end = next((at for at in range(index + 1, len(words)) if words[at] in _CLAUSES), len(words))
                return "".join(words[index + 1 : end]) in FORMATS
            if word == "as":
                return False
        return False

    def position(self) -> int:
        """Where the next token starts."""
        if self.is_at_end():
            raise self.error("the statement ends too early")
        return self._tokens[self._next].start

    def end(self) -> int:
        """Where the last token ends."""
        return self._tokens[self._next - 1].end

    def name(self) -> tuple[str, ...]:
        parts = [self._take().text]
        while self.is_at("."):
            self._next += 1
            parts.append(self._take().text)
        return tuple(parts)

    def names(self) -> tuple[str, ...]:
        """A list of names in parentheses."""
        self._expect("(")
        found = [self._take().text]
        while self.is_at(","):
            self._next += 1
            found.append(self._take().text)
        self._expect(")")
        return tuple(found)

    def columns(self) -> StructType:
        """The columns in parentheses, with their types."""
        start, depth = self._take().end, 1
        while depth:
            token = self._take()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        columns = StructType.fromDDL(self._text[start : token.start])
        assert isinstance(columns, StructType)
        return columns

    def options(self) -> dict[str, str]:
        """`('key' = 'value', other.key 'value')`."""
        self._expect("(")
        found: dict[str, str] = {}
        while True:
            key = ".".join(self.name())
            self.take("=")
            found[key] = str(self.literal())
            if not self.is_at(","):
                break
            self._next += 1
        self._expect(")")
        return found

    def partition(self) -> dict[str, str | None]:
        """`(day = '2026-01-31', level)`; values are SQL."""
        self._expect("(")
        found: dict[str, str | None] = {}
        while True:
            (name,) = self.name()
            found[name] = self._written() if self.take("=") else None
            if not self.is_at(","):
                break
            self._next += 1
        self._expect(")")
        return found

    def literal(self) -> Any:
        return self._read_literal(self._written())

    def _written(self) -> str:
        """The text of the next literal."""
        first = self._take()
        last = first
        if first.text in ("-", "+"):
            last = self._take()
        return self._text[first.start : last.end]

    def _expect(self, word: str) -> None:
        if not self.take(word):
            raise self.error(f"expected {word}")

    def _take(self) -> _Word:
        if self.is_at_end():
            raise self.error("the statement ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def error(self, reason: str) -> InvalidStatementError:
        """An error that marks the next token."""
        if self.is_at_end():
            return sql_error(self._text, len(self._text), len(self._text), reason)
        token = self._tokens[self._next]
        return sql_error(self._text, token.start, token.end, reason)
