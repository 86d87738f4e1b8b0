"""The benchmark harness, end to end at sizes of about 100, without judging the figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

pytest.importorskip("deltalake", reason="the peers are installed by `make bench`")
pytest.importorskip("pyiceberg", reason="the peers are installed by `make bench`")

FIGURE_FIELDS = {
    "name",
    "unit",
    "ours",
    "peer_name",
    "peer",
    "ratio",
    "goal",
    "verdict",
    "note",
    "samples",
}


def run_harness(*arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_chosen_benchmarks_give_a_table_json_and_markdown(tmp_path):
    result, page = tmp_path / "results" / "latest.json", tmp_path / "BENCHMARKS.md"
    chosen = ["add", "memory", "curve"]

    outputs = ["--json", str(result), "--markdown", str(page), "--charts", str(tmp_path / "charts")]
    printed = run_harness("--tiny", "--only", *chosen, *outputs)

    found = json.loads(result.read_text())
    assert found["sizes"] == "tiny"
    assert {"cores", "memory", "python", "deltalake", "pyiceberg"} <= set(found["machine"])
    assert [benchmark["name"] for benchmark in found["benchmarks"]] == chosen
    figures = [figure for benchmark in found["benchmarks"] for figure in benchmark["figures"]]
    for figure in figures:
        assert set(figure) == FIGURE_FIELDS
        assert figure["ours"] > 0
        assert figure["ratio"] == pytest.approx(figure["ours"] / figure["peer"])
        assert figure["verdict"] == "-"
        assert figure["name"] in page.read_text()
        assert figure["name"] in printed
    assert {figure["peer_name"] for figure in figures} == {"deltalake", "pyiceberg", "the whole state"}


def test_racing_writers_lose_no_commit(tmp_path):
    result = tmp_path / "latest.json"
    run_harness("--tiny", "--only", "commits", "--json", str(result))
    (benchmark,) = json.loads(result.read_text())["benchmarks"]
    assert [figure["peer_name"] for figure in benchmark["figures"]] == ["deltalake", "raw disk", "deltalake"]
    assert all("durable" in figure["note"] for figure in benchmark["figures"])


def test_states_are_measured_by_their_manifests_and_on_s3(tmp_path):
    result = tmp_path / "latest.json"
    run_harness("--tiny", "--only", "manifests", "s3", "--json", str(result))
    manifests, cloud = json.loads(result.read_text())["benchmarks"]
    assert [figure["goal"] for figure in manifests["figures"]] == ["≤ 200 ms"]
    assert [(figure["peer_name"], figure["goal"]) for figure in cloud["figures"]] == [("deltalake", "≤ 2 s")]


def test_retained_states_and_scattered_partitions_are_measured(tmp_path):
    result = tmp_path / "latest.json"
    run_harness("--tiny", "--only", "retained", "--json", str(result))
    (benchmark,) = json.loads(result.read_text())["benchmarks"]
    commit, partition = benchmark["figures"]
    assert (commit["peer_name"], commit["goal"]) == ("2 retained states", "≤ 1.5 times 2 retained states")
    assert partition["peer_name"] == "before COMPACT"
    assert "10 of 14 manifests before COMPACT, and 1 of" in partition["note"]


def test_tables_in_a_work_folder_are_kept_and_copies_are_not(tmp_path):
    work, page = tmp_path / "work", tmp_path / "BENCHMARKS.md"
    arguments = (
        "--tiny", "--only", "compact", "--work-dir", str(work), "--json", str(tmp_path / "latest.json"),
        "--markdown", str(page), "--charts", str(tmp_path / "charts"),
    )  # fmt: skip
    assert "built" in run_harness(*arguments)
    assert sorted(path.name.partition("-")[0] for path in work.iterdir() if path.is_dir()) == [
        "deltalake",
        "ours",
    ]
    assert "built" not in run_harness(*arguments)
    assert str(tmp_path) not in page.read_text()


def test_list_names_the_benchmarks_of_the_log_and_the_state():
    names = [line.split()[0] for line in run_harness("--list").splitlines()]
    wanted = ["open", "replay", "commits", "add", "compact", "memory", "partition", "curve"]
    assert [name for name in names if name in wanted] == wanted


def test_a_check_without_a_judged_goal_fails(tmp_path):
    arguments = ["--tiny", "--only", "add", "--check", "--json", str(tmp_path / "latest.json")]
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 1
    assert "no goal was judged" in finished.stdout
