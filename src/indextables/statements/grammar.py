"""The grammar of the statements: from text to a statement, or to an error with the position and the syntax."""

import difflib
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache
from typing import Any, Final, NoReturn

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from indextables._syntax import error_position
from indextables.config.kinds import Size
from indextables.errors import InvalidOptionError, InvalidStatementError
from indextables.predicates import parse_predicate
from indextables.predicates.literals import timestamp_ms
from indextables.schema.evolution import AFTER, FIRST
from indextables.statements import nodes
from indextables.statements.forms import FORMS, is_ours
from indextables.statements.nodes import Statement, TableName, TablePath, Target
from indextables.statements.row_changes import RowsReader
from indextables.statements.texts import statement_error, unquote

# The length limit of a predicate, which is the longest part of a statement.
MAX_STATEMENT_LENGTH: Final = 1_000_000

# The gap between the words of a two-word terminal, such as TARGET SIZE. The expression is unambiguous: if a comment
# could match in two ways, a text with many comments would take exponential time.
_GAP: Final = r"(?:\s|--[^\n]*\n|\/\*(?:[^*]|\*(?!\/))*\*\/)+"

_RULES: Final = r"""
    start: _statement SEMICOLON*
    _statement: checkpoint | compact | state | transaction_log | history | merge_jobs | disk_cache | environment
        | merge | purge | truncate | drop | delete | update | merge_into | alter | repair | prewarm | publish
        | invalidate | flush | fsck | restore

    checkpoint: CHECKPOINT OURS target
    compact: COMPACT OURS target
    state: DESCRIBE OURS STATE target
    transaction_log: DESCRIBE OURS TRANSACTION LOG target include_all?
    history: DESCRIBE OURS HISTORY target
    merge_jobs: DESCRIBE OURS MERGE JOBS
    disk_cache: DESCRIBE OURS DISK CACHE
    environment: DESCRIBE OURS ENVIRONMENT
    merge: MERGE (OURS SPLITS? | SPLITS) target (where | target_size | max_dest | max_source)*
    purge: PURGE (OURS | INDEXTABLE) target (older_than | log_retention | dry_run)*
    truncate: TRUNCATE OURS TIME TRAVEL target dry_run?
    drop: DROP OURS PARTITIONS FROM target where
    delete: DELETE OURS? FROM target (where | matching | dry_run)*
    update: UPDATE OURS? target set (where | matching | dry_run)*
    merge_into: MERGE OURS? INTO target alias? using on (matched | not_matched)+ dry_run?
    alter: ALTER (TABLE | OURS) target _change
    _change: ADD _COLUMNS (added | OPEN added (COMMA added)* CLOSE)
        | DROP _COLUMNS (dropped | OPEN dropped (COMMA dropped)* CLOSE)
        | renamed | altered
    added: path type (default | comment | position)*
    dropped: path
    renamed: RENAME COLUMN path TO name
    altered: (ALTER | CHANGE) COLUMN path (new_type | drop_not_null | set_not_null | comment | position)+
    new_type: TYPE type
    drop_not_null: DROP_NOT_NULL
    set_not_null: SET_NOT_NULL
    default: DEFAULT (STRING | NUMBER | NAME)
    comment: COMMENT_WORD STRING
    position: FIRST | AFTER name
    path: NAME (DOT NAME)*
    name: NAME
    type: NAME (OPEN INTEGER (COMMA INTEGER)* CLOSE | LESS (member | type) (COMMA (member | type))* GREATER)?
    member: NAME COLON type | NAME type
    repair: REPAIR (INDEXFILES | OURS) (TRANSACTION LOG)? target location?
    prewarm: PREWARM OURS target for_fields? where?
    publish: PUBLISH OURS target AS DELTA
    invalidate: INVALIDATE OURS TRANSACTION LOG CACHE (FOR target)?
    flush: FLUSH OURS DISK CACHE
    fsck: FSCK OURS target deep?
    restore: RESTORE OURS target TO (version | timestamp)

    target: STRING | NAME (DOT NAME)*
    include_all: INCLUDE ALL
    for_fields: FOR FIELDS OPEN field (COMMA field)* CLOSE
    field: NAME | STRING
    where: WHERE _piece+
    _piece: STRING | PIECE
    set: SET _piece+
    alias: AS? NAME
    using: USING (STRING | NAME (DOT NAME)* | SUBQUERY) alias?
    on: ON _piece+
    matched: WHEN_MATCHED condition? (then_update | then_delete)
    not_matched: WHEN_NOT_MATCHED condition? then_insert
    condition: AND _piece+
    then_update: THEN_UPDATE _piece+
    then_delete: THEN_DELETE
    then_insert: THEN_INSERT _piece+
    target_size: TARGET_SIZE (SIZE | STRING)
    max_dest: MAX_DEST SPLITS INTEGER
    max_source: MAX_SOURCE SPLITS PER MERGE INTEGER
    older_than: OLDER THAN INTEGER UNIT
    log_retention: TRANSACTION LOG RETENTION INTEGER UNIT
    dry_run: DRY_RUN
    matching: MATCHING_QUERY STRING
    location: AT LOCATION STRING
    deep: DEEP
    version: VERSION (AS_OF)? INTEGER
    timestamp: TIMESTAMP (AS_OF)? STRING
"""

# What stands between the parentheses of a subquery: texts in quotes, and parentheses up to a depth.
_NESTED: Final = 6
_INNER: Final = r"""[^()'"`]|'(?:\\.|[^'\\])*+'|"(?:\\.|[^"\\])*+"|`[^`]*+`"""


def _parenthesised(depth: int) -> str:
    inner = _INNER if depth == 0 else f"{_INNER}|{_parenthesised(depth - 1)}"
    return rf"\((?:{inner})*+\)"


_TERMINALS: Final = rf"""
    OURS.2: /(INDEXTABLES|TANTIVY4SPARK)(?!\w|\s*\.)/i
    INDEXTABLE.2: /INDEXTABLE(?!\w)/i
    INDEXFILES.2: /INDEXFILES(?!\w)/i
    DESCRIBE.2: /DESC(RIBE)?(?!\w)/i
    UNIT.2: /(DAY|HOUR)S?(?!\w)/i
    STRING: /'(\\.|''|[^'\\])*'|"(\\.|""|[^"\\])*"/s
    NAME: /\w+|`(``|[^`])+`/
    INTEGER: /[0-9]{{1,18}}(?!\w)/
    SIZE: /[0-9]{{1,18}}(\.[0-9]{{1,9}})?\s*([KMGTP]I?B?|B)?(?!\w)/i
    PIECE: /\w+|`(``|[^`])+`|[^\s\w'"`;]/
    NUMBER: /[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?!\w)/
    _COLUMNS.2: /COLUMNS?(?!\w)/i
    COLUMN.3: /COLUMN(?!\w)/i
    COMMENT_WORD.2: /COMMENT(?!\w)/i
    DROP_NOT_NULL.2: /DROP{_GAP}NOT{_GAP}NULL(?!\w)/is
    SET_NOT_NULL.2: /SET{_GAP}NOT{_GAP}NULL(?!\w)/is
    LESS: "<"
    GREATER: ">"
    COLON: ":"
    DOT: "."
    COMMA: ","
    OPEN: "("
    SUBQUERY: /{_parenthesised(_NESTED)}/s
    CLOSE: ")"
    SEMICOLON: ";"
    COMMENT.3: /--[^\n]*|\/\*.*?\*\//s
    %ignore COMMENT
    %ignore /\s+/
    TARGET_SIZE.2: /TARGET{_GAP}SIZE(?!\w)/is
    MAX_DEST.2: /MAX{_GAP}DEST(?!\w)/is
    MAX_SOURCE.2: /MAX{_GAP}SOURCE(?!\w)/is
    AS_OF.2: /AS{_GAP}OF(?!\w)/is
    DRY_RUN.2: /DRY{_GAP}RUN(?!\w)/is
    MATCHING_QUERY.2: /MATCHING{_GAP}QUERY(?!\w)/is
    WHEN_MATCHED.2: /WHEN{_GAP}MATCHED(?!\w)/is
    WHEN_NOT_MATCHED.2: /WHEN{_GAP}NOT{_GAP}MATCHED(?!\w)/is
    THEN_UPDATE.2: /THEN{_GAP}UPDATE{_GAP}SET(?!\w)/is
    THEN_DELETE.2: /THEN{_GAP}DELETE(?!\w)/is
    THEN_INSERT.2: /THEN{_GAP}INSERT(?!\w)/is
"""

# Every other word in capitals is a keyword, in any case.
_DEFINED: Final = frozenset(re.findall(r"^ *([A-Z_]+)[.:]", _TERMINALS, re.MULTILINE))
_WORDS: Final = sorted({*re.findall(r"\b[A-Z_]+\b", _RULES)} - _DEFINED)

GRAMMAR: Final = _RULES + _TERMINALS + "".join(f"    {word}.2: /{word}(?!\\w)/i\n" for word in _WORDS)


def is_statement(text: str) -> bool:
    """Whether a text begins like a statement of IndexTables, valid or not."""
    return is_ours(text)


def parse_statement(text: str) -> Statement | None:
    """Parse a statement. Returns None for a text that does not begin like a statement of IndexTables.

    Raises InvalidStatementError, with the position and the syntax, for an invalid statement, and
    InvalidPredicateError for an invalid condition after WHERE.
    """
    return parse_ours(text) if is_ours(text) else None


def parse_ours(text: str) -> Statement:
    """Parse a text that begins like a statement of IndexTables; for others, `parse_statement` returns None."""
    if len(text) > MAX_STATEMENT_LENGTH:
        raise InvalidStatementError(
            f"the statement has {len(text)} characters; {MAX_STATEMENT_LENGTH} are allowed",
            position=MAX_STATEMENT_LENGTH,
        )
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise syntax_error(text, error) from error
    return _Reader(text).statement(tree.children[0])


def require_statement(text: str) -> Statement:
    """Parse a text that must be a statement. Raises InvalidStatementError with all statements if it is not one."""
    statement = parse_statement(text)
    if statement is None:
        known = "\n".join(f"  {form.syntax}" for form in FORMS)
        raise InvalidStatementError(
            f"not a statement of IndexTables, nor a SELECT; the statements are\n{known}", position=0
        )
    return statement


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=False, propagate_positions=True
    )


class _Reader:
    """Builds a statement from the parse tree of a text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def statement(self, tree: Any) -> Statement:
        return _KINDS[tree.data](self, tree)

    def without_target(self, tree: Any) -> Statement:
        return _WITHOUT_TARGET[tree.data]()

    def with_target(self, tree: Any) -> Statement:
        return _WITH_TARGET[tree.data](self.target(tree))

    def transaction_log(self, tree: Any) -> Statement:
        return nodes.DescribeTransactionLog(self.target(tree), "include_all" in self.clauses(tree))

    def merge(self, tree: Any) -> Statement:
        clauses = self.clauses(tree)
        return nodes.MergeSplits(
            self.target(tree),
            where=self.condition(clauses),
            target_bytes=self.size(clauses["target_size"]) if "target_size" in clauses else None,
            max_dest_splits=self.integer(clauses, "max_dest"),
            max_source_splits_per_merge=self.integer(clauses, "max_source"),
        )

    def purge(self, tree: Any) -> Statement:
        clauses = self.clauses(tree)
        return nodes.Purge(
            self.target(tree),
            older_than=self.retention(clauses, "older_than"),
            log_retention=self.retention(clauses, "log_retention"),
            is_dry_run="dry_run" in clauses,
        )

    def truncate(self, tree: Any) -> Statement:
        return nodes.TruncateTimeTravel(self.target(tree), "dry_run" in self.clauses(tree))

    def drop(self, tree: Any) -> Statement:
        where = self.condition(self.clauses(tree))
        assert where is not None  # the grammar requires it
        return nodes.DropPartitions(self.target(tree), where)

    def delete(self, tree: Any) -> Statement:
        clauses = self.clauses(tree)
        return nodes.Delete(self.target(tree), *self.choice(clauses), is_dry_run="dry_run" in clauses)

    def update(self, tree: Any) -> Statement:
        clauses = self.clauses(tree)
        values = RowsReader(self.text).assignments(clauses["set"].children[1:])
        return nodes.Update(self.target(tree), values, *self.choice(clauses), is_dry_run="dry_run" in clauses)

    def choice(self, clauses: dict[str, Any]) -> tuple[str | None, str | None, tuple[str, ...]]:
        """Which rows: a predicate, a query, and the columns that the query searches."""
        where = clauses.get("where")
        found = RowsReader(self.text).choice(() if where is None else where.children[1:])
        if found.where is not None:
            parse_predicate(found.where)
        if "matching" not in clauses:
            return found.where, found.query, found.fields
        query = clauses["matching"].children[-1]
        if found.query is not None:
            self.fail(query, "WHERE has a search already; combine the two queries in one")
        return found.where, unquote(query), ()

    def merge_into(self, tree: Any) -> Statement:
        return RowsReader(self.text).merge_into(tree, self.target(tree))

    def alter(self, tree: Any) -> Statement:
        changes = [
            child for child in tree.children if not isinstance(child, Token) and child.data != "target"
        ]
        (target,) = tree.find_data("target")
        return nodes.Alter(self.named(target), tuple(map(self.change, changes)))

    def change(self, tree: Any) -> nodes.ColumnChange:
        found = self.clauses(tree)
        path = tuple(unquote(name) for name in found["path"].children if name.type == "NAME")
        comment = unquote(found["comment"].children[-1]) if "comment" in found else None
        position = None
        if "position" in found:
            *_, last = found["position"].children
            position = FIRST if isinstance(last, Token) else f"{AFTER}{unquote(last.children[0])}"
        match tree.data:
            case "added":
                default = unquote(found["default"].children[-1]) if "default" in found else None
                return nodes.AddedColumn(path, self.type_text(found["type"]), default, comment, position)
            case "dropped":
                return nodes.DroppedColumn(path)
            case "renamed":
                return nodes.RenamedColumn(path, unquote(found["name"].children[0]))
        new_type = self.type_text(found["new_type"].children[-1]) if "new_type" in found else None
        nullable = True if "drop_not_null" in found else False if "set_not_null" in found else None
        return nodes.AlteredColumn(path, new_type, nullable, comment, position)

    def type_text(self, tree: Any) -> str:
        return self.text[tree.meta.start_pos : tree.meta.end_pos]

    def repair(self, tree: Any) -> Statement:
        location = self.clauses(tree).get("location")
        return nodes.Repair(self.target(tree), None if location is None else self.path(location.children[-1]))

    def prewarm(self, tree: Any) -> Statement:
        clauses = self.clauses(tree)
        named = clauses["for_fields"].children if "for_fields" in clauses else ()
        fields = tuple(unquote(each.children[0]) for each in named if not isinstance(each, Token))
        return nodes.Prewarm(self.target(tree), fields, self.condition(clauses))

    def publish(self, tree: Any) -> Statement:
        return nodes.Publish(self.target(tree), str(tree.children[-1]).lower())

    def invalidate(self, tree: Any) -> Statement:
        return nodes.InvalidateLogCache(self.target(tree) if "target" in self.clauses(tree) else None)

    def fsck(self, tree: Any) -> Statement:
        return nodes.Fsck(self.target(tree), "deep" in self.clauses(tree))

    def restore(self, tree: Any) -> Statement:
        clauses = self.clauses(tree)
        if "version" in clauses:
            return nodes.Restore(self.target(tree), version=int(clauses["version"].children[-1]))
        moment = clauses["timestamp"].children[-1]
        text = unquote(moment)
        try:
            timestamp_ms(text)
        except (InvalidOptionError, OverflowError):
            self.fail(moment, "not a timestamp; write it as '2026-01-31T12:00:00Z'")
        return nodes.Restore(self.target(tree), timestamp=text)

    def clauses(self, tree: Any) -> dict[str, Any]:
        """The clauses of a statement by name. Each may occur once."""
        found: dict[str, Any] = {}
        for child in tree.children:
            if isinstance(child, Token):
                continue
            if child.data in found:
                self.fail(child.children[0], "this clause occurs twice; remove one of them")
            found[child.data] = child
        return found

    def target(self, tree: Any) -> Target:
        [found] = (
            child for child in tree.children if not isinstance(child, Token) and child.data == "target"
        )
        return self.named(found)

    def named(self, target: Any) -> Target:
        names = target.children
        if names[0].type == "STRING":
            return TablePath(self.path(names[0]))
        return TableName(tuple(unquote(name) for name in names if name.type == "NAME"))

    def path(self, token: Token) -> str:
        path = unquote(token)
        if not path.strip():
            self.fail(token, "the path is empty")
        return path

    def condition(self, clauses: dict[str, Any]) -> str | None:
        if "where" not in clauses:
            return None
        _, first, *more = clauses["where"].children
        text = self.text[first.start_pos : (more or [first])[-1].end_pos]
        parse_predicate(text)
        return text

    def size(self, tree: Any) -> int:
        token = tree.children[-1]
        try:
            return Size().read(unquote(token) if token.type == "STRING" else str(token))
        except ValueError:
            self.fail(token, "not a size; write it as 100M or 1G")

    def integer(self, clauses: dict[str, Any], name: str) -> int | None:
        return int(clauses[name].children[-1]) if name in clauses else None

    def retention(self, clauses: dict[str, Any], name: str) -> timedelta | None:
        if name not in clauses:
            return None
        number, unit = clauses[name].children[-2:]
        try:
            return timedelta(hours=int(number) * (24 if unit.upper().startswith("DAY") else 1))
        except OverflowError:
            self.fail(number, "the retention is too long")

    def fail(self, token: Token, reason: str) -> NoReturn:
        assert token.start_pos is not None
        assert token.end_pos is not None
        raise statement_error(self.text, token.start_pos, token.end_pos, reason)


_WITH_TARGET: Final[dict[str, Callable[[Target], Statement]]] = {
    "checkpoint": nodes.Checkpoint,
    "compact": nodes.Compact,
    "state": nodes.DescribeState,
    "history": nodes.DescribeHistory,
}
_WITHOUT_TARGET: Final[dict[str, Callable[[], Statement]]] = {
    "merge_jobs": nodes.DescribeMergeJobs,
    "disk_cache": nodes.DescribeDiskCache,
    "environment": nodes.DescribeEnvironment,
    "flush": nodes.FlushDiskCache,
}
_KINDS: Final[dict[str, Callable[[_Reader, Any], Statement]]] = {
    **dict.fromkeys(_WITH_TARGET, _Reader.with_target),
    **dict.fromkeys(_WITHOUT_TARGET, _Reader.without_target),
    "transaction_log": _Reader.transaction_log,
    "merge": _Reader.merge,
    "purge": _Reader.purge,
    "truncate": _Reader.truncate,
    "drop": _Reader.drop,
    "delete": _Reader.delete,
    "alter": _Reader.alter,
    "update": _Reader.update,
    "merge_into": _Reader.merge_into,
    "repair": _Reader.repair,
    "prewarm": _Reader.prewarm,
    "publish": _Reader.publish,
    "invalidate": _Reader.invalidate,
    "fsck": _Reader.fsck,
    "restore": _Reader.restore,
}


# --- Syntax errors: the position, what is expected there, and the syntax --------------------------------

# The names of terminals that are not keywords.
_NAMES: Final = {
    "OURS": "INDEXTABLES",
    "STRING": "a text in quotes",
    "NAME": "a table's name",
    "INTEGER": "a whole number",
    "SIZE": "a size such as 100M",
    "UNIT": "DAYS or HOURS",
    "PIECE": "a condition",
    "TARGET_SIZE": "TARGET SIZE",
    "MAX_DEST": "MAX DEST SPLITS",
    "MAX_SOURCE": "MAX SOURCE SPLITS PER MERGE",
    "AS_OF": "AS OF",
    "DRY_RUN": "DRY RUN",
    "MATCHING_QUERY": "MATCHING QUERY",
    "NUMBER": "a number",
    "COMMENT_WORD": "COMMENT",
    "DROP_NOT_NULL": "DROP NOT NULL",
    "SET_NOT_NULL": "SET NOT NULL",
    "_COLUMNS": "COLUMNS",
    "LESS": "<",
    "GREATER": ">",
    "COLON": "a colon",
    "WHEN_MATCHED": "WHEN MATCHED",
    "WHEN_NOT_MATCHED": "WHEN NOT MATCHED",
    "THEN_UPDATE": "THEN UPDATE SET",
    "THEN_DELETE": "THEN DELETE",
    "THEN_INSERT": "THEN INSERT",
    "COMMA": "a comma",
    "OPEN": "(",
    "SUBQUERY": "a subquery in parentheses",
    "CLOSE": ")",
    "$END": "the end of the statement",
}
_UNMENTIONED: Final = frozenset({"SEMICOLON", "DOT", "COMMENT", "AS_OF"})
_NEAR_ENOUGH: Final = 0.7

_WORD: Final = re.compile(r"\w+|.", re.DOTALL)


def syntax_error(text: str, error: UnexpectedInput) -> InvalidStatementError:
    """The error for a text that cannot be parsed."""
    start = error_position(text, error)
    word = _WORD.match(text, start)
    if word is None:
        return statement_error(
            text, start, start, f"the statement ends here, but {_expected(error)} must follow"
        )
    if word[0] in "'\"`":
        return statement_error(text, start, start + 1, _about_quotes(text, start, error))
    if text.startswith("/*", start):
        return statement_error(text, start, start + 2, "this comment is not closed; add */")
    near = difflib.get_close_matches(word[0].upper(), _words(error), n=1, cutoff=_NEAR_ENOUGH)
    meant = f"; did you mean {near[0]}?" if near and near[0] != _expected(error) else ""
    return statement_error(text, start, word.end(), f"expected {_expected(error)}{meant}")


def _about_quotes(text: str, start: int, error: UnexpectedInput) -> str:
    if text.count(text[start], start) < 2 or isinstance(error, UnexpectedCharacters):
        return "this quote is not closed"
    return f"expected {_expected(error)}"


def _expected(error: UnexpectedInput) -> str:
    """What the grammar expects; a path and a name count as one choice."""
    names = sorted(_terminals(error) - _UNMENTIONED)
    if {"STRING", "NAME"} <= set(names):
        return "a path in quotes, or a table's name"
    for name in ("PIECE", "SIZE"):
        if name in names:
            return _NAMES[name]
    spoken = [_NAMES.get(name, name) for name in names]
    return " or ".join(filter(None, [", ".join(spoken[:-1]), *spoken[-1:]]))


def _words(error: UnexpectedInput) -> list[str]:
    return [
        _NAMES.get(name, name) for name in _terminals(error) if name.isupper() and name not in _UNMENTIONED
    ]


def _terminals(error: UnexpectedInput) -> set[str]:
    found: Iterable[str] | None = None
    if isinstance(error, UnexpectedToken):
        found = error.accepts or error.expected
    elif isinstance(error, UnexpectedCharacters):
        found = error.allowed
    return set(found or ())
