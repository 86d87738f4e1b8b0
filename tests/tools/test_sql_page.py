"""docs/sql.md contains every statement with its syntax, an example and its columns."""

import re
from pathlib import Path

import pytest

from indextables.statements.forms import FORMS

DOCUMENT = Path(__file__).parents[2] / "docs" / "sql.md"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind.__name__)
def test_document_has_the_syntax_an_example_and_the_columns_of_every_statement(form):
    section = re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (found,) = (part for part in section if part.startswith(f"{' '.join(form.head)}\n"))
    assert f"```sql\n{form.syntax}\n```" in found
    assert f"```sql\n{form.example}\n```" in found
    assert re.findall(r"^\| `(\w+)`", found, re.MULTILINE) == [column.name for column in form.columns]
