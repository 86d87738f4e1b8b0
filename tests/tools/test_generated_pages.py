"""The generated pages are up to date, and the check detects a stale one."""

import pytest

from tools import generated_pages


def test_pages_in_the_repository_are_current():
    assert generated_pages.stale_pages() == []


@pytest.mark.parametrize("content", [None, "", "# Configuration\n"], ids=["missing", "empty", "stale"])
def test_check_of_a_stale_page_fails_with_the_command_to_run(tmp_path, capsys, monkeypatch, content):
    path = tmp_path / "configuration.md"
    monkeypatch.setattr(generated_pages, "PAGES", {path: lambda: "# Configuration\n\nall of it\n"})
    if content is not None:
        path.write_text(content)
    assert generated_pages.main(["--check"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert "make docs-generated" in line
    assert generated_pages.main(["--write"]) == 0
    assert generated_pages.main(["--check"]) == 0


def test_no_action_is_wrong_use(capsys):
    assert generated_pages.main([]) == 2
    assert "--check" in capsys.readouterr().err
