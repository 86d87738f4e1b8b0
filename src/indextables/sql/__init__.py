"""The SQL statements of IndexTables: the text of a statement in, an Arrow table out, with no engine in between.

The package can be called as its function `sql`: `indextables.sql("…")` works, whoever has imported what before.
"""

import sys
from types import ModuleType
from typing import Any

import pyarrow as pa

from indextables.sql.caller import Caller, TableResolver
from indextables.sql.grammar import is_statement, parse_statement
from indextables.sql.run import run_statement, sql
from indextables.sql.statements import Statement, TableName, TablePath

__all__ = [
    "Caller",
    "Statement",
    "TableName",
    "TablePath",
    "TableResolver",
    "is_statement",
    "parse_statement",
    "run_statement",
    "sql",
]


class _CallablePackage(ModuleType):
    def __call__(self, text: str, **arguments: Any) -> pa.Table:
        return sql(text, **arguments)


sys.modules[__name__].__class__ = _CallablePackage
