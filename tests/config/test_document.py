"""docs/configuration.md says what the registry says, and its example runs."""

import re
from pathlib import Path

import pytest

from indextables.config import list_families, list_settings
from indextables.config.__main__ import main
from indextables.config.document import render

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_document_in_the_repository_is_up_to_date():
    assert main(["--check", str(DOCUMENT)]) == 0


def test_written_document_passes_the_check(tmp_path):
    path = tmp_path / "configuration.md"
    assert main(["--write", str(path)]) == 0
    assert main(["--check", str(path)]) == 0


@pytest.mark.parametrize("content", [None, "", "# Configuration\n"], ids=["missing", "empty", "stale"])
def test_check_of_a_drifted_document_fails_with_the_command_to_run(tmp_path, capsys, content):
    path = tmp_path / "configuration.md"
    if content is not None:
        path.write_text(content)
    assert main(["--check", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert f"python -m indextables.config --write {path}" in line


def test_no_action_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "--check" in capsys.readouterr().err


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
