"""docs/configuration.md contains the whole registry, and its example runs."""

import re
from pathlib import Path

from indextables.config import list_families, list_settings
from tools.configuration_page import render

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_every_setting_alias_and_family_has_its_row():
    rows = [line for line in render().splitlines() if line.startswith("| `spark.indextables.")]
    assert len(rows) == len(list_settings()) + len(list_families())
    for setting in list_settings():
        (row,) = (row for row in rows if row.startswith(f"| `{setting.key}` |"))
        assert setting.help in row
        assert all(f"`{alias.key}`" in row for alias in setting.aliases)
    for family in list_families():
        assert any(row.startswith(f"| `{family.prefix}<{family.placeholder}>` |") for row in rows)


def test_every_row_of_a_table_has_as_many_cells_as_its_head():
    for table in re.findall(r"(?:^\|.*\n)+", render(), flags=re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(cells) == 1


def test_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", render(), flags=re.DOTALL)
    exec(compile(example, "docs/configuration.md", "exec"), {})


def test_setting_without_effect_says_so_and_why():
    for setting in list_settings():
        (row,) = (row for row in render().splitlines() if row.startswith(f"| `{setting.key}` |"))
        note = f"**Accepted without effect**: {setting.without_effect}."
        assert (note in row) is (setting.without_effect is not None)
        assert ("without effect" in row) is (setting.without_effect is not None)
