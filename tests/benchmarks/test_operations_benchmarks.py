"""The benchmarks of operations, the command line and Spark, end to end at the smallest sizes."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

# Looked for, but not imported: Lance warns at every fork of a process that has it.
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("deltalake", "pyiceberg", "lance", "matplotlib"))),
    reason="the peers are installed by `make bench`",
)
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install indextables[spark])")

needs_java = pytest.mark.skipif(
    shutil.which("java") is None, reason="Spark needs Java, which is not installed"
)


@pytest.fixture
def package(monkeypatch):
    """Import the benchmarks package, which is not installed."""
    monkeypatch.syspath_prepend(str(PROJECT))
    return pytest.importorskip("benchmarks")


def measured(tmp_path: Path, *names: str) -> list[dict[str, object]]:
    """The figures of benchmarks."""
    result = tmp_path / "latest.json"
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--tiny", "--only", *names, "--json", str(result)],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return [
        figure
        for benchmark in json.loads(result.read_text())["benchmarks"]
        for figure in benchmark["figures"]
    ]


def test_commands_are_timed_to_their_first_output(tmp_path):
    figures = measured(tmp_path, "startup")
    commands = [figure["name"].split("`")[1] for figure in figures]
    assert commands == ["indextables describe", "indextables files", "indextables search"]
    assert {(figure["peer_name"], figure["goal"]) for figure in figures} == {("import pyarrow", "≤ 500 ms")}


def test_changes_of_rows_are_measured_against_deltalake(tmp_path):
    figures = measured(tmp_path, "row-changes")
    assert [(figure["name"], figure["peer_name"], figure["goal"]) for figure in figures] == [
        ("delete 10 scattered rows of 500", "deltalake", "≤ 0.5 times deltalake"),
        ("upsert 20 rows into 500", "deltalake", "≤ 1 times deltalake"),
    ]


def test_publishing_is_measured_against_the_commit_and_against_deltalake(tmp_path):
    figures = measured(tmp_path, "publish")
    assert {figure["peer_name"]: figure["goal"] for figure in figures} == {
        "the commit and its state alone": "≤ 1.5 times the commit and its state alone",
        "the same rows in files of deltalake": "≤ 1.1 times the same rows in files of deltalake",
    }


@needs_java
def test_spark_and_operations_are_measured_against_each_peer(tmp_path):
    figures = measured(tmp_path, "spark", "operations")
    goals = {figure["name"]: figure["goal"] for figure in figures if figure["goal"]}
    assert goals.pop("index 500 rows on Spark") == "≤ 2.5 times tantivy on every core"
    scans = {name: goal for name, goal in goals.items() if name.startswith("scan")}
    assert scans == {
        f"scan 500 rows on Spark, {columns}": "≤ 1.1 times Parquet on Spark"
        for columns in ("all columns", "2 columns")
    }
    searches = [goal for name, goal in goals.items() if "with a word" in name]
    assert searches
    assert set(searches) == {
        "≤ 0.2 times LIKE on Parquet on Spark",
        "≤ 0.3 times LIKE on Parquet on Spark",
    }
    planned = {figure["peer_name"] for figure in figures if figure["name"].startswith("plan one partition")}
    assert planned == {"deltalake", "our files() in Python"}
    merges = {goal for name, goal in goals.items() if name.startswith("merge")}
    assert merges == {"≤ 1.5 times tantivy"}
    without = [(figure["name"], figure["peer_name"]) for figure in figures if not figure["goal"]]
    assert [each for each in without if "with a word" not in each[0]] == [
        ("purge 20 files: plan", "deltalake"),
        ("purge 20 files: plan and delete", "deltalake"),
        ("purge 20 files: plan and delete", "unlink"),
    ]
    assert all(figure["ours"] > 0 for figure in figures)


def test_words_are_found_in_about_as_many_rows_as_asked_for(package):
    rows = pytest.importorskip("benchmarks.rows")
    messages = [message.split() for message in rows.generate_rows(20_000)["message"].to_pylist()]
    for count in (20, 200):
        word = rows.word_found_in(count, len(messages))
        assert count / 2 < sum(word in message for message in messages) < count * 2


def test_a_command_that_fails_is_no_measurement(package):
    measure = pytest.importorskip("benchmarks.measure")
    with pytest.raises(measure.WrongResultError, match="no such table"):
        measure._seconds_to_output(
            [sys.executable, "-c", "import sys; print('begun', flush=True); sys.exit('no such table')"]
        )


def test_the_chart_of_indexing_shows_spark_beside_one_writer(package, tmp_path):
    charts = pytest.importorskip("benchmarks.charts")
    figures = [
        {"name": "index 1,000 rows", "ours": 2.0, "peer_name": "tantivy", "peer": 1.0},
        {"name": "index 1,000 rows on Spark", "ours": 0.5, "peer_name": "tantivy on every core", "peer": 0.4},
    ]
    result = {"benchmarks": [{"figures": figures}]}
    assert charts.indexing_rates(result) == {
        "IndexTables": 500,
        "tantivy": 1000,
        "IndexTables on Spark": 2000,
        "tantivy on every core": 2500,
    }
    assert [path.name for path in charts.draw_charts(result, tmp_path)] == ["indexing.svg"]
