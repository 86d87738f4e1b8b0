"""Metadata-only commits: one writer, and several racing writers."""

from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from pathlib import Path

from benchmarks import delta, delta_writer, our_writer, ours
from benchmarks.benchmark import Benchmark
from benchmarks.figures import Figure, Unit
from benchmarks.files import DataFile
from benchmarks.measure import Action, Samples, WrongResultError, measure_times
from benchmarks.racing import Commit, commit_all, race
from benchmarks.raw_disk import durable_writes
from benchmarks.workshop import Workshop

_DURABILITY = (
    "Our commits are durable: file and directory are flushed to disk before a commit counts. deltalake "
    "does not flush (it calls no fsync), so a crash of the machine may lose its commits. The raw disk figure is the "
    "minimal cost of a durable write of the same bytes."
)


def _measure(workshop: Workshop) -> Iterator[Figure]:
    yield from _one_writer(workshop)
    yield _racing_writers(workshop)


def _one_writer(workshop: Workshop) -> Iterator[Figure]:
    commits = workshop.sizes.commits
    files = list(workshop.generate(commits))
    times = measure_times(
        {
            "ours": lambda: _committing(_new_our_table(workshop), our_writer.open_writer, files),
            "deltalake": lambda: _committing(_new_delta_table(workshop), delta_writer.open_writer, files),
            "raw disk": lambda: _writing(workshop, _payload(workshop), commits),
        },
        runs=workshop.sizes.slow_runs,
    )
    for peer in ("deltalake", "raw disk"):
        yield _figure("one writer", times["ours"], peer, times[peer], commits)


def _racing_writers(workshop: Workshop) -> Figure:
    writers, commits = workshop.sizes.writers, workshop.sizes.commits_per_writer
    total = writers * commits
    times: dict[str, list[float]] = {"ours": [], "deltalake": []}
    for _ in range(workshop.sizes.slow_runs):
        our_path, delta_path = _new_our_table(workshop), _new_delta_table(workshop)
        times["ours"].append(race("benchmarks.our_writer", our_path, writers=writers, commits=commits))
        times["deltalake"].append(
            race("benchmarks.delta_writer", delta_path, writers=writers, commits=commits)
        )
        _check_all_committed("ours", ours.list_files(our_path), total)
        _check_all_committed("deltalake", delta.list_files(delta_path), total)
    return _figure(
        f"{writers} writers",
        Samples(tuple(times["ours"])),
        "deltalake",
        Samples(tuple(times["deltalake"])),
        total,
    )


def _check_all_committed(side: str, files: Sized, total: int) -> None:
    if len(files) != total:
        raise WrongResultError(f"{side}: {len(files)} of {total} commits are in the table")


def _figure(name: str, our_times: Samples, peer: str, peer_times: Samples, commits: int) -> Figure:
    return Figure(
        name=f"a commit of one file: {name}",
        unit=Unit.SECONDS_PER_COMMIT,
        ours=our_times.median / commits,
        peer_name=peer,
        peer=peer_times.median / commits,
        note=_DURABILITY,
        samples={
            "ours": tuple(seconds / commits for seconds in our_times.values),
            "peer": tuple(seconds / commits for seconds in peer_times.values),
        },
    )


def _new_our_table(workshop: Workshop) -> Path:
    path = workshop.new_path()
    ours.create_table(path)
    return path


def _new_delta_table(workshop: Workshop) -> Path:
    path = workshop.new_path()
    delta.create_table(path)
    return path


def _committing(path: Path, open_writer: Callable[[Path], Commit], files: Sequence[DataFile]) -> Action:
    return partial(commit_all, open_writer(path), files)


def _writing(workshop: Workshop, payload: bytes, count: int) -> Action:
    folder = workshop.new_path()
    folder.mkdir()
    return partial(durable_writes, folder, payload, count)


def _payload(workshop: Workshop) -> bytes:
    """As many bytes as one of our commits."""
    path = _new_our_table(workshop)
    commit_all(our_writer.open_writer(path), list(workshop.generate(1)))
    return ours.version_bytes(path, 1)


COMMITS = Benchmark("commits", "commits of one file each, metadata only, no checkpoints", _measure)
