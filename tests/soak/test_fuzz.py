"""Fuzzing for a given time: the properties of `make test`, fed with random bytes instead of a few examples.

A failure reports its target, seed and number. `python -m soak.test_fuzz target seed number`, run in the tests folder,
runs that input alone.
"""

import itertools
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import SplitCorruptedError, UnsupportedSplitError
from support.purge_tables import sample_split
from support.search_indexes import build_index
from support.split_samples import opened, read_all
from support.tables import memory_store

# Limits for one input: far above any legitimate need, far below a decompression bomb.
SECONDS = 20.0
GROWTH_BYTES = 2 << 30
SLICE_SECONDS = 0.5

Property = Callable[[bytes], object]


def fuzz_target(module: str, name: str) -> Property:
    """A property-based test of another module as a function of the bytes from which its input is drawn."""
    target: Property = getattr(import_module(module), name).hypothesis.fuzz_one_input
    return target


def queries() -> Property:
    module = import_module("search.test_query_robustness")
    index = build_index(module.MAPPING, module.NULL_ROW)
    check = module.test_rows_or_an_error_with_a_position.hypothesis.inner_test

    @given(module.queries.map(" ".join))
    def search(text: str) -> None:
        check(index, text)

    target: Property = search.hypothesis.fuzz_one_input
    return target


def splits() -> Property:
    data, file = sample_split(0)
    store = memory_store()
    store.put(file.path, data)
    expected = read_all(opened(store, file))

    @given(place=st.integers(0, len(data)), removed=st.integers(0, 40), inserted=st.binary(max_size=40))
    def read(place: int, removed: int, inserted: bytes) -> None:
        store.put(file.path, data[:place] + inserted + data[place + removed :])
        try:
            found = read_all(opened(store, file))
        except (SplitCorruptedError, UnsupportedSplitError):
            return
        # Only a search reads what lies outside of the rows and the footer.
        assert found.equals(expected)

    target: Property = read.hypothesis.fuzz_one_input
    return target


TARGETS: dict[str, Callable[[], Property]] = {
    "version files": lambda: fuzz_target(
        "log.test_decode", "test_damaged_lines_are_read_or_raise_log_corrupted"
    ),
    "checkpoints": lambda: fuzz_target(
        "table.test_any_damage", "test_log_with_any_damaged_file_opens_or_raises"
    ),
    "hints": lambda: fuzz_target("table.test_any_hint", "test_any_hint_leads_to_the_same_table"),
    "manifests": lambda: fuzz_target(
        "state.test_manifest_damage", "test_mutilated_manifests_raise_only_manifest_corrupted"
    ),
    "bytes as manifests": lambda: fuzz_target(
        "state.test_manifest_damage", "test_arbitrary_bytes_raise_only_manifest_corrupted"
    ),
    "state manifests": lambda: fuzz_target(
        "state.test_state_manifest_codec", "test_mutilated_state_manifests_raise_only_typed_errors"
    ),
    "footers of the JVM": lambda: fuzz_target(
        "split.test_jvm_bundle", "test_arbitrary_bytes_are_not_a_footer"
    ),
    "Thrift": lambda: fuzz_target("split.test_thrift", "test_arbitrary_bytes_are_a_struct_or_an_error"),
    "page tables": lambda: fuzz_target(
        "split.test_pages", "test_arbitrary_bytes_are_a_page_table_or_an_error"
    ),
    "splits": splits,
    "queries": queries,
    "statements": lambda: fuzz_target(
        "statements.test_grammar", "test_any_text_parses_or_raises_an_error_with_a_position"
    ),
    "predicates": lambda: fuzz_target(
        "predicates.test_parser", "test_any_text_is_a_predicate_or_a_typed_error"
    ),
}


def inputs(seed: int) -> Iterator[bytes]:
    """The bytes to draw inputs from, short ones first."""
    dice = random.Random(seed)
    for number in itertools.count(1):
        yield dice.randbytes(dice.randrange(1, min(16 * number, 4096) + 1))


def memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_exists_and_takes_an_input(name):
    TARGETS[name]()(b"\0" * 64)


@pytest.mark.soak
def test_bad_input_gives_typed_errors_in_bounded_time_and_memory(soak_minutes, soak_report):
    seed = random.SystemRandom().randrange(1 << 40)
    sys.stdout.write(f"\nfuzzing with seed {seed}\n")
    deadline = time.monotonic() + soak_minutes * 60
    properties = {name: target() for name, target in TARGETS.items()}
    feeds = {name: enumerate(inputs(seed)) for name in TARGETS}
    failures: list[str] = []
    while properties and time.monotonic() < deadline:
        for name, check in list(properties.items()):
            tried, failure = _try_for_a_while(name, check, feeds[name], seed)
            soak_report["inputs tried"] += tried
            soak_report[f"inputs tried: {name}"] += tried
            if failure is not None:
                soak_report["violations"] += 1
                failures.append(failure)
                del properties[name]
    assert not failures, "\n\n".join(failures)


def _try_for_a_while(
    name: str, check: Property, feed: Iterator[tuple[int, bytes]], seed: int
) -> tuple[int, str | None]:
    """The number of valid inputs, and the failure of the last one, if any."""
    until, tried, before = time.monotonic() + SLICE_SECONDS, 0, memory_bytes()
    while (started := time.monotonic()) < until:
        number, data = next(feed)
        complaint = None
        try:
            tried += check(data) is not None
        except Exception as error:  # noqa: BLE001  # whatever it is, it is what was looked for
            complaint = f"{type(error).__name__}: {error}"
        took = time.monotonic() - started
        if took > SECONDS:
            complaint = f"it took {took:.0f} seconds"
        if memory_bytes() - before > GROWTH_BYTES:
            complaint = f"it took {(memory_bytes() - before) >> 20} MB of memory"
        if complaint is not None:
            return tried, f"{name}, seed {seed}, input {number}: {complaint}"
    return tried, None


def again(name: str, seed: int, number: int) -> Any:
    """Run one failed input again."""
    return TARGETS[name]()(next(itertools.islice(inputs(seed), number, None)))


if __name__ == "__main__":
    again(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
