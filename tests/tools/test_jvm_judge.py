"""`make jvm-judge` says why it is skipped where its environment cannot be installed."""

import pytest

from tools import jvm_judge


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in place of the environment, and no command to be found."""
    monkeypatch.setattr(jvm_judge, "FOLDER", tmp_path / "judge")
    monkeypatch.setattr(jvm_judge, "JAR", tmp_path / "judge" / "a.jar")
    monkeypatch.setattr(jvm_judge, "_READY", tmp_path / "judge" / "ready")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "judge"


def command(tmp_path, name: str, script: str) -> None:
    file = tmp_path / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_a_missing_command_is_named(folder, tmp_path, capsys):
    assert jvm_judge.main() == 1
    assert "skipped: java is not installed" in capsys.readouterr().err
    command(tmp_path, "java", "exit 0")
    assert jvm_judge.main() == 1
    assert "skipped: mvn is not installed" in capsys.readouterr().err
    assert not folder.exists()


def test_what_maven_says_is_the_reason(folder, tmp_path, capsys):
    command(tmp_path, "java", "exit 0")
    command(tmp_path, "mvn", "echo '[ERROR] the artifact was not found'; exit 1")
    assert jvm_judge.main() == 1
    said = capsys.readouterr().err
    assert "Maven did not deliver io.indextables:indextables_spark:0.5.5" in said
    assert "the artifact was not found" in said
    assert not jvm_judge.is_ready()


def test_an_environment_of_another_lock_file_is_not_ready(folder):
    folder.mkdir()
    (folder / "ready").write_text("pyspark==3.4\n")
    assert not jvm_judge.is_ready()
    (folder / "ready").write_text(jvm_judge._LOCK.read_text())
    assert jvm_judge.is_ready()
    assert jvm_judge.main() == 0
