"""Renders the documentation of all statements, docs/sql.md, from their forms."""

from collections.abc import Iterator

import pyarrow as pa

from indextables._results import Status
from indextables.statements.forms import FORMS, Form

_INTRODUCTION = """\
<!-- Generated from src/indextables/statements/forms.py by `make docs-generated`. Do not edit. -->

# SQL statements

Three ways to the same answer:

- `indextables.sql(text, storage_options=…, options=…)` returns a `pyarrow.Table`; no Spark is needed.
- `spark.sql(text)` on a session that `indextables.spark.enable(spark)` has made ready returns a DataFrame. The
  settings of the session apply. Everything that is not a statement of IndexTables goes to Spark, as ever.
- `indextables sql "…"` prints a table, or JSON with `--json`. Exit codes: 0 done, 1 the table says no (an error, or
  the status `FAILED`), 2 wrong use.

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
    assert "did you mean STATE?" in str(error)  # with the place, and the syntax
```

```sh
indextables sql "DESCRIBE INDEXTABLES STATE 'logs'"
indextables sql "DROP INDEXTABLES PARTITIONS FROM 'logs' WHERE date < '2026-01-31'" --json
```

## How statements are written

Words in capitals stand for themselves, in upper or lower case; what stands in brackets may be left out. Everywhere
`TANTIVY4SPARK` may be written for `INDEXTABLES`, and `DESC` for `DESCRIBE`. A `;` may follow, and comments (`-- …` and
`/* … */`) may stand between words.

`table` is a path or a URL in quotes, `'s3://bucket/logs'`; in Spark also the name of a table in the catalog, if the
catalog knows its location. `condition` is a predicate in Spark's SQL that compares columns with literals. A quote
within quotes is written twice, or after a backslash.

The first words decide whose statement it is: `DESCRIBE TABLE`, `MERGE INTO`, `REPAIR TABLE`, `TRUNCATE TABLE` and
`DROP TABLE` are Spark's. A mistake within one of the statements below is an error that shows the place and the syntax.

Answers of one row have a `status`: {statuses}. What cannot be done at all raises an error, and leaves no answer.
"""

_COLUMNS = ("Column", "Type", "Meaning")


def render() -> str:
    """Return the whole document as Markdown."""
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
    """A type as Spark's SQL writes it."""
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
