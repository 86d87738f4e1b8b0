"""Figures of the benchmarks, and the check of their goals. Neither needs the peers that `make bench` installs."""

from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    """Import the benchmarks package, which is not installed, from beside `src`."""
    monkeypatch.syspath_prepend(str(PROJECT))
    return pytest.importorskip("benchmarks.figures")


def test_goals_are_judged_by_ratio_or_by_our_figure(benchmarks):
    figure, unit, verdict = benchmarks.Figure, benchmarks.Unit, benchmarks.Verdict

    def judged(goal, *, is_judged=True):
        return figure("open", unit.SECONDS, 0.3, "peer", 0.5, goal, is_goal_judged=is_judged).verdict

    assert judged(benchmarks.MostTimes(0.6)) is verdict.PASS
    assert judged(benchmarks.MostTimes(0.5)) is verdict.MISS
    assert judged(benchmarks.AtMost(0.3)) is verdict.PASS
    assert judged(benchmarks.AtMost(0.2)) is verdict.MISS
    assert judged(benchmarks.AtMost(0.2), is_judged=False) is verdict.NONE
    assert judged(None) is verdict.NONE


def test_a_missed_goal_fails_the_check_and_is_named(benchmarks):
    def checked(*goals):
        said = []
        figures = [
            benchmarks.Figure(f"goal {number}", benchmarks.Unit.SECONDS, 2.0, "peer", 1.0, goal)
            for number, goal in enumerate(goals)
        ]
        return benchmarks.check_goals(figures, said.append), said

    assert checked(benchmarks.MostTimes(3), benchmarks.MostTimes(2), benchmarks.AtMost(2), None) == (0, [])
    assert checked(benchmarks.MostTimes(3), benchmarks.MostTimes(1.5), benchmarks.AtMost(0.1)) == (
        1,
        [
            "missed: goal 1: 2 times peer, goal ≤ 1.5 times peer",
            "missed: goal 2: 2 s, goal ≤ 100 ms",
        ],
    )


def test_a_check_that_judged_no_goal_fails(benchmarks):
    figure = benchmarks.Figure("open", benchmarks.Unit.SECONDS, 2.0, "peer", 1.0)
    for figures in ([], [figure]):
        said = []
        assert benchmarks.check_goals(figures, said.append) == 1
        assert "no goal was judged" in said[0]


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (0.0123, "s", "12.3 ms"),
        (1.5, "s", "1.5 s"),
        (0.002, "s/commit", "2 ms/commit"),
        (49_600_000, "bytes", "49.6 MB"),
        (999, "bytes", "999 B"),
    ],
)
def test_amounts_are_shown_in_the_unit_that_suits_them(benchmarks, amount, unit, text):
    assert benchmarks.amount_text(amount, benchmarks.Unit(unit)) == text
