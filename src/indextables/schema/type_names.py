"""The types of columns as SQL writes them: BIGINT, DECIMAL(10,2), ARRAY<STRING>, STRUCT<a: INT, b: DATE>."""

from typing import Final

import pyarrow as pa

from indextables.errors import InvalidSchemaError
from indextables.schema.spark_json import ATOMIC_TYPES, check_depth, check_names, from_spark_json

# Names that people use, and what Spark calls them.
_OTHER_NAMES: Final = {
    "tinyint": "byte",
    "int8": "byte",
    "smallint": "short",
    "int16": "short",
    "int": "integer",
    "int32": "integer",
    "bigint": "long",
    "int64": "long",
    "real": "float",
    "float32": "float",
    "float64": "double",
    "dec": "decimal",
    "numeric": "decimal",
    "bool": "boolean",
    "str": "string",
    "text": "string",
    "datetime": "timestamp",
}
_PUNCTUATION: Final = "<>(),:"


def type_named(text: str, column: str) -> pa.DataType:
    """Return the Arrow type of a type in SQL or in Spark's spelling. Raises InvalidSchemaError, naming the column."""
    parser = _Parser(text, column)
    data_type = parser.type(0)
    parser.expect_end()
    return data_type


class _Parser:
    """Reads a type from left to right."""

    def __init__(self, text: str, column: str) -> None:
        self._text = text
        self._column = column
        self._words = _words(text)
        self._next = 0

    def type(self, depth: int) -> pa.DataType:
        check_depth(self._column, depth)
        name = self._word().lower()
        if self._peek() == "<" and name in ("array", "map", "struct"):
            self._take("<")
            data_type = self._nested(name, depth)
            self._take(">")
            return data_type
        name = _OTHER_NAMES.get(name, name)
        if self._peek() == "(":
            name += self._arguments()
        try:
            return ATOMIC_TYPES.get(name) or _from_spark(name)
        except InvalidSchemaError as error:
            raise self._error(f"there is no type {name!r}") from error

    def expect_end(self) -> None:
        if self._next < len(self._words):
            raise self._error(f"{self._words[self._next]!r} is one word too many")

    def _nested(self, name: str, depth: int) -> pa.DataType:
        if name == "array":
            return pa.list_(pa.field("element", self.type(depth + 1)))
        if name == "map":
            key = self.type(depth + 1)
            self._take(",")
            return pa.map_(pa.field("key", key, nullable=False), pa.field("value", self.type(depth + 1)))
        fields = [self._member(depth)]
        while self._peek() == ",":
            self._take(",")
            fields.append(self._member(depth))
        check_names((field.name for field in fields), f"struct {self._column!r}")
        return pa.struct(fields)

    def _member(self, depth: int) -> pa.Field:
        name = self._word()
        if self._peek() == ":":
            self._take(":")
        return pa.field(name, self.type(depth + 1))

    def _arguments(self) -> str:
        parts = []
        self._take("(")
        while self._peek() != ")":
            parts.append(self._word() if self._peek() != "," else self._take(","))
        self._take(")")
        return f"({''.join(parts)})"

    def _peek(self) -> str:
        return self._words[self._next] if self._next < len(self._words) else ""

    def _word(self) -> str:
        word = self._peek()
        if not word or word in _PUNCTUATION:
            raise self._error(f"a name is missing before {word!r}" if word else "it ends too early")
        self._next += 1
        return word.strip("`") or word

    def _take(self, sign: str) -> str:
        if self._peek() != sign:
            raise self._error(f"{sign!r} is missing")
        self._next += 1
        return sign

    def _error(self, problem: str) -> InvalidSchemaError:
        return InvalidSchemaError(
            f"column {self._column!r} has the type {self._text!r}: {problem}; write a type such as BIGINT, "
            f"DECIMAL(10,2), STRING, TIMESTAMP, ARRAY<STRING> or STRUCT<a: INT, b: DATE>"
        )


def _words(text: str) -> list[str]:
    for sign in _PUNCTUATION:
        text = text.replace(sign, f" {sign} ")
    return text.split()


def _from_spark(name: str) -> pa.DataType:
    field = f'{{"name":"column","type":"{name}"}}'
    return from_spark_json(f'{{"type":"struct","fields":[{field}]}}').field(0).type
