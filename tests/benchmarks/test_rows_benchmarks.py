"""The benchmarks of splits and search, end to end at the smallest sizes, and the generated rows."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

# Looked for, but not imported: Lance warns at every fork of a process that has it.
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("deltalake", "pyiceberg", "lance"))),
    reason="the peers are installed by `make bench`",
)


@pytest.fixture
def rows(monkeypatch):
    """Import the module of generated rows from a package that is not installed."""
    monkeypatch.syspath_prepend(str(PROJECT))
    return pytest.importorskip("benchmarks.rows")


def test_splits_and_search_are_measured_against_each_peer(tmp_path):
    result = tmp_path / "latest.json"
    arguments = ["--tiny", "--only", "splits", "search", "--json", str(result)]
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    splits, search = json.loads(result.read_text())["benchmarks"]
    peers = {figure["peer_name"] for figure in splits["figures"]}
    assert peers == {"tantivy", "pyarrow and tantivy", "pyarrow", "Parquet alone", "Lance with its index"}
    assert {figure["peer_name"] for figure in search["figures"]} == {"tantivy", "Lance"}
    goals = [figure["goal"] for figure in [*splits["figures"], *search["figures"]] if figure["goal"]]
    assert goals == [
        "≤ 1.66667 times tantivy",
        "≤ 1.5 times pyarrow and tantivy",
        "≤ 1.3 times pyarrow",
        "≤ 2 times Parquet alone",
        "≤ 1 times Lance with its index",
        "≤ 1.3 times tantivy",
        "≤ 1.5 times tantivy",
        "≤ 2 times Lance",
        "≤ 1 times Lance",
        "≤ 1.5 times Lance",
        "≤ 1 times Lance",
    ]


def test_rows_are_the_same_each_time_and_their_words_as_frequent_as_those_of_a_language(rows):
    generated = rows.generate_rows(2000)
    assert generated.equals(rows.generate_rows(2000))
    assert generated.schema.equals(rows.SCHEMA)
    words = [word for message in generated["message"].to_pylist() for word in message.split()]
    assert 8 <= len(words) / 2000 <= 16
    counts = sorted((words.count(word) for word in set(words)), reverse=True)
    assert 0.3 < counts[1] / counts[0] < 0.8
    assert 0.05 < counts[9] / counts[0] < 0.2


def test_queries_are_the_same_each_time_and_others_in_another_batch(rows):
    assert rows.generate_queries(5, 1000) == rows.generate_queries(5, 1000)
    assert rows.generate_queries(5, 1000).words != rows.generate_queries(5, 1000, batch=1).words
    assert len(rows.generate_queries(5, 1000).mixed) == 15
