"""Renders docs/sql.md from the forms of the statements."""

from collections.abc import Iterator

import pyarrow as pa

from indextables._results import Status
from indextables.statements.forms import FORMS, Form

_INTRODUCTION = """\
<!-- Generated from src/indextables/statements/forms.py by `make docs-generated`. Do not edit. -->

# SQL statements

There are three ways to run a statement, with the same result:

- `indextables.sql(text, storage_options=…, options=…)` returns a `pyarrow.Table` and does not need Spark.
- `spark.sql(text)` returns a DataFrame, after `indextables.spark.enable(spark)`. The settings of the session apply.
  Spark runs every statement that is not a statement of IndexTables.
- `indextables sql "…"` prints a table, or JSON with `--json`. Exit codes: 0 success, 1 failure (an error, or the status
  `FAILED`), 2 invalid usage.

```python
import pyarrow as pa
import indextables
from indextables import IndexTable

schema = pa.schema([("date", pa.string()), ("message", pa.string())])
table = IndexTable.create("logs", schema, partition_by=["date"], text=["message"])
for day in ("2026-01-30", "2026-01-31"):
    table.append(pa.table({"date": [day], "message": ["connection timeout"]}, schema=schema))
    table.append(pa.table({"date": [day], "message": ["connected"]}, schema=schema))

(merged,) = indextables.sql("MERGE SPLITS 'logs' TARGET SIZE 1G").to_pylist()
assert (merged["source_splits"], merged["new_splits"]) == (4, 2)

(preview,) = indextables.sql("PURGE INDEXTABLE 'logs' OLDER THAN 7 DAYS DRY RUN").to_pylist()
assert preview["status"] == "DRY_RUN"

try:
    indextables.sql("DESCRIBE INDEXTABLES STAT 'logs'")
except indextables.errors.InvalidStatementError as error:
    assert "did you mean STATE?" in str(error)  # the message also shows the position and the syntax
```

```sh
indextables sql "DESCRIBE INDEXTABLES STATE 'logs'"
indextables sql "DROP INDEXTABLES PARTITIONS FROM 'logs' WHERE date < '2026-01-31'" --json
```

## Syntax

Words in capitals are keywords, in any case; parts in brackets are optional. `TANTIVY4SPARK` is a synonym of
`INDEXTABLES`, and `DESC` of `DESCRIBE`. A statement may end with `;` and contain comments (`-- …` and `/* … */`).

Every statement takes the word `INDEXTABLES` after its first one: `MERGE INDEXTABLES 'logs'`, `PURGE INDEXTABLES
'logs'`, `REPAIR INDEXTABLES 'logs'`, `DELETE INDEXTABLES FROM 'logs'` and `ALTER INDEXTABLES 'logs'` are the same as
the spellings below. Queries (`SELECT`, `WITH`) have [a page of their own](guide/select.md).

`table` is a path or URL in quotes, such as `'s3://bucket/logs'`. In Spark it can also be the name of a table in the
catalog, if the catalog knows its location. `condition` is a Spark SQL predicate that compares columns with literals.
Inside quotes, write a quote twice or escape it with a backslash.

The first words decide who runs a statement: `DESCRIBE TABLE`, `MERGE INTO`, `REPAIR TABLE`, `TRUNCATE TABLE` and
`DROP TABLE` are Spark's. A syntax error in one of the statements below shows the position and the syntax.

Results of one row have a `status`: {statuses}. A statement that cannot run at all raises an error and returns no rows.
"""

_COLUMNS = ("Column", "Type", "Meaning")


def render() -> str:
    """Return the page as Markdown."""
    statuses = ", ".join(f"`{status.value}`" for status in Status)
    return "\n".join([_INTRODUCTION.replace("{statuses}", statuses), *_sections()])


def _sections() -> Iterator[str]:
    for form in FORMS:
        yield f"## {' '.join(form.head)}\n"
        yield f"```sql\n{form.syntax}\n```\n"
        yield f"{form.meaning}\n"
        yield f"Example:\n```sql\n{form.example}\n```\n"
        yield _table(form)


def _table(form: Form) -> str:
    rows = [(f"`{column.name}`", f"`{_type(column.type)}`", column.meaning) for column in form.columns]
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _type(kind: pa.DataType) -> str:
    """Return the name of a type in Spark SQL."""
    if pa.types.is_list(kind):
        return f"array<{_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)}, {_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_type(field.type)}' for field in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return _NAMES[kind]


_NAMES = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
