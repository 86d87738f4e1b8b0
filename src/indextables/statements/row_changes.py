"""The parts of UPDATE and MERGE INTO that are SQL of their own: assignments, keys, sources and clauses.

The grammar leaves them as pieces: words, names, literals and single characters. Expressions stay as they were written.
"""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import msgspec
from lark import Token

from indextables.statements import nodes
from indextables.statements.texts import statement_error, unquote

Pieces = Sequence[Token]

_SEARCH: Final = "TEXTSEARCH"


class Choice(msgspec.Struct, frozen=True):
    """Which rows: a predicate, a full-text query, and the columns that it searches; all text columns without any."""

    where: str | None = None
    query: str | None = None
    fields: tuple[str, ...] = ()


class RowsReader:
    """Builds the parts of a statement from the pieces of a text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def merge_into(self, tree: Any, target: nodes.Target) -> nodes.MergeInto:
        """The statement of a parse tree. Raises InvalidStatementError."""
        named = {child.data: child for child in tree.children if not isinstance(child, Token)}
        target_name = unquote(named["alias"].children[-1]) if "alias" in named else "target"
        source, source_name = self._source(named["using"].children[1:])
        clauses = [each for each in tree.children if not isinstance(each, Token)]
        return nodes.MergeInto(
            target,
            source,
            self._keys(named["on"].children[1:], target_name, source_name),
            tuple(self._clause(each, target_name) for each in clauses if each.data == "matched"),
            tuple(self._clause(each, target_name) for each in clauses if each.data == "not_matched"),
            target_name,
            source_name,
            "dry_run" in named,
        )

    def assignments(self, pieces: Pieces, owner: str | None = None) -> tuple[tuple[str, str], ...]:
        """`column = expression, …`: columns and expressions. `owner` may stand before a column."""
        found = []
        for part in self._split(pieces, ","):
            sign = next((place for place, piece in enumerate(part) if piece == "="), None)
            if sign is None or sign == 0 or sign == len(part) - 1:
                self._fail(part or pieces, "write each value as column = expression")
            found.append((self._column(part[:sign], owner), self._text(part[sign + 1 :])))
        return tuple(found)

    def choice(self, pieces: Pieces) -> Choice:
        """A condition, of which one part may be `column TEXTSEARCH 'query'`, or `* TEXTSEARCH 'query'`."""
        if not pieces:
            return Choice()
        searches = [piece for piece in pieces if piece.upper() == _SEARCH]
        if not searches:
            return Choice(self._text(pieces))
        parts = self._split(pieces, "AND")
        found = next((part for part in parts if _is_search(part)), None)
        if found is None or len(searches) > 1 or len(self._split(pieces, "OR")) > 1:
            self._fail(
                searches[-1:],
                "rows are chosen by one search, as column TEXTSEARCH 'query', joined to other conditions by AND",
            )
        rest = [self._text(part) for part in parts if part is not found]
        column = unquote(found[-3])
        return Choice(
            " AND ".join(rest) if rest else None, unquote(found[-1]), () if column == "*" else (column,)
        )

    def _clause(self, tree: Any, target_name: str) -> nodes.MergeClause:
        *conditions, action = [child for child in tree.children if not isinstance(child, Token)]
        condition = self._text(conditions[0].children[1:]) if conditions else None
        pieces = action.children[1:]
        if action.data == "then_delete":
            return nodes.MergeClause(is_delete=True, condition=condition)
        if [str(piece) for piece in pieces] == ["*"]:
            return nodes.MergeClause(condition=condition)
        if action.data == "then_update":
            return nodes.MergeClause(values=self.assignments(pieces, target_name), condition=condition)
        return nodes.MergeClause(values=self._inserted(pieces, target_name), condition=condition)

    def _inserted(self, pieces: Pieces, target_name: str) -> tuple[tuple[str, str], ...]:
        """`(column, …) VALUES (expression, …)`."""
        middle = [place for place, piece in enumerate(pieces) if piece.upper() == "VALUES"]
        if not middle:
            self._fail(pieces, "write INSERT *, or INSERT (column, …) VALUES (expression, …)")
        columns = [
            self._column(part, target_name)
            for part in self._split(self._inner(pieces[: middle[0]], pieces), ",")
        ]
        values = [self._text(part) for part in self._split(self._inner(pieces[middle[0] + 1 :], pieces), ",")]
        if len(columns) != len(values):
            self._fail(pieces, f"there are {len(columns)} columns and {len(values)} values")
        return tuple(zip(columns, values, strict=True))

    def _inner(self, pieces: Pieces, all_pieces: Pieces) -> Pieces:
        if len(pieces) < 3 or pieces[0] != "(" or pieces[-1] != ")":
            self._fail(pieces or all_pieces, "write INSERT *, or INSERT (column, …) VALUES (expression, …)")
        return pieces[1:-1]

    def _keys(self, pieces: Pieces, target_name: str, source_name: str) -> tuple[tuple[str, str], ...]:
        """`name.column = name.column AND …`: pairs of the table's and the source's columns."""
        found = []
        for part in self._split(pieces, "AND"):
            sides = self._split(part, "=")
            owners = [str(unquote(side[0])).lower() for side in sides if len(side) == 3 and side[1] == "."]
            both = [target_name.lower(), source_name.lower()]
            if len(sides) != 2 or sorted(owners) != sorted(both):
                self._fail(
                    part or pieces,
                    f"a merge compares key columns for equality, as in {target_name}.id = {source_name}.id, joined "
                    f"by AND; other conditions belong to WHEN MATCHED AND …",
                )
            columns = dict(zip(owners, (unquote(side[2]) for side in sides), strict=True))
            found.append((columns[both[0]], columns[both[1]]))
        return tuple(found)

    def _source(self, children: Sequence[Any]) -> tuple[nodes.Relation, str]:
        """A path, a name or a subquery, and what it is called."""
        pieces = [child for child in children if isinstance(child, Token)]
        named = [child for child in children if not isinstance(child, Token)]
        name = "source"
        if named:
            name = unquote(named[0].children[-1])
        elif pieces[-1].type == "NAME":
            name = unquote(pieces[-1])
        if pieces[0].type == "STRING":
            return nodes.Relation(path=unquote(pieces[0])), name
        return nodes.Relation(sql=self._text(pieces)), name

    def _column(self, pieces: Pieces, owner: str | None) -> str:
        if (
            len(pieces) == 3
            and pieces[1] == "."
            and owner is not None
            and unquote(pieces[0]).lower() == owner.lower()
        ):
            pieces = pieces[2:]
        if len(pieces) != 1 or not _is_name(pieces[0]):
            self._fail(pieces, "expected the name of a column")
        return unquote(pieces[0])

    def _split(self, pieces: Pieces, separator: str) -> list[Pieces]:
        """The pieces between separators outside of parentheses."""
        parts: list[list[Token]] = [[]]
        depth = 0
        for piece in pieces:
            depth += (piece == "(") - (piece == ")")
            if depth == 0 and piece.upper() == separator:
                parts.append([])
            else:
                parts[-1].append(piece)
        empty = next((place for place, part in enumerate(parts) if not part), None)
        if empty is not None:
            self._fail(pieces, f"something is missing beside {separator!r}")
        return [*parts]

    def _text(self, pieces: Pieces) -> str:
        return self.text[pieces[0].start_pos : pieces[-1].end_pos]

    def _fail(self, pieces: Pieces, reason: str) -> NoReturn:
        start, end = pieces[0].start_pos, pieces[-1].end_pos
        assert start is not None
        assert end is not None
        raise statement_error(self.text, start, end, reason)


def _is_search(part: Pieces) -> bool:
    """`column TEXTSEARCH 'query'`; a name before the column tells which table, and there is one."""
    is_qualified = len(part) == 5 and part[1] == "."
    return (len(part) == 3 or is_qualified) and part[-2].upper() == _SEARCH and part[-1].type == "STRING"


def _is_name(piece: Token) -> bool:
    return piece.isidentifier() or piece.startswith("`")
