"""The SQL statements of IndexTables: a text in, an Arrow table out, without an engine in between."""

from indextables.statements.caller import Caller, TableResolver
from indextables.statements.forms import is_select, row_change_target
from indextables.statements.grammar import is_statement, parse_ours, parse_statement
from indextables.statements.nodes import Statement, TableName, TablePath
from indextables.statements.run import run_statement, select_rows, sql

__all__ = [
    "Caller",
    "Statement",
    "TableName",
    "TablePath",
    "TableResolver",
    "is_select",
    "is_statement",
    "parse_ours",
    "parse_statement",
    "row_change_target",
    "run_statement",
    "select_rows",
    "sql",
]
