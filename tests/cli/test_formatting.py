"""Formatting of sizes, times and texts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables._results import iso
from indextables.cli.formatting import ago, count, duration, size, visible, when
from indextables.predicates.literals import timestamp_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("number_of_bytes", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_258_291, "1.2 MiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**4, "5.0 TiB"),
        (2**63, "8.0 EiB"),
    ],
)
def test_size_is_in_the_unit_that_reads_best(number_of_bytes: int, expected: str) -> None:
    assert size(number_of_bytes) == expected


@settings(max_examples=200)
@given(st.integers(min_value=0, max_value=2**63))
def test_size_never_shows_more_than_four_digits_before_the_point(number_of_bytes: int) -> None:
    number, _ = size(number_of_bytes).split()
    assert float(number) < 1024


@pytest.mark.parametrize(
    ("seconds_ago", "expected"),
    [
        (0, "just now"),
        (1, "1 second ago"),
        (59, "59 seconds ago"),
        (180, "3 minutes ago"),
        (3_600, "1 hour ago"),
        (2 * 86_400, "2 days ago"),
        (45 * 86_400, "1 month ago"),
        (800 * 86_400, "2 years ago"),
        (-7_200, "in 2 hours"),
    ],
)
def test_ago_names_the_largest_unit(seconds_ago: int, expected: str) -> None:
    assert ago(NOW_MS - seconds_ago * 1000, NOW_MS) == expected


def test_when_gives_relative_and_absolute_time() -> None:
    assert when(NOW_MS - 180_000, NOW_MS) == "3 minutes ago (2023-11-14T22:10:20.000Z)"


@settings(max_examples=200)
@given(st.integers(min_value=0, max_value=4_000_000_000_000))
def test_iso_is_read_back_to_the_millisecond(moment_ms: int) -> None:
    assert timestamp_ms(iso(moment_ms)) == moment_ms


@settings(max_examples=200)
@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_any_timestamp_in_a_log_can_be_shown(moment_ms: int) -> None:
    assert when(moment_ms, NOW_MS)


def test_counts_and_durations_read_as_words() -> None:
    assert [count(1, "file"), count(0, "file"), count(1234, "file")] == ["1 file", "0 files", "1,234 files"]
    assert [duration(0.0123), duration(0.9999), duration(3.44)] == ["12 ms", "1.0 s", "3.4 s"]


def test_visible_escapes_control_characters() -> None:
    assert visible("a\x1b[31mb\nc\x9b\u202ed") == "a\\x1b[31mb\\nc\\x9b\\u202ed"


def test_visible_leaves_ordinary_text_alone() -> None:
    assert visible("date=2026-01-31/é 中.split") == "date=2026-01-31/é 中.split"
