"""Recent scan requests of a DataFrame stay part of its plan, for a limited time."""

import os
import uuid
from pathlib import Path

import pytest

from indextables.errors import InvalidOptionError
from indextables.predicates import Comparison, Operator, Or
from indextables.spark import shared_plans
from indextables.spark.shared_plans import ScanRequest, merge_requests, remember

A, B = Comparison("id", Operator.EQ, 1), Comparison("id", Operator.EQ, 2)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", tmp_path.as_posix())
    return tmp_path / f"indextables-plans-{os.getuid()}"


def test_requests_of_one_frame_are_merged_and_those_of_other_frames_are_not() -> None:
    one, other = uuid.uuid4().hex, uuid.uuid4().hex
    assert remember(one, ScanRequest(where=A)) == (ScanRequest(where=A),)
    assert remember(other, ScanRequest(where=B)) == (ScanRequest(where=B),)
    assert merge_requests(remember(one, ScanRequest(where=B))) == (ScanRequest(where=Or(A, B)),)
    assert merge_requests(remember(one, ScanRequest())) == (ScanRequest(),)


def test_requests_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    scan, now = uuid.uuid4().hex, 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    remember(scan, ScanRequest())
    now += shared_plans.WINDOW_SECONDS - 1
    assert remember(scan, ScanRequest(where=A)) == (ScanRequest(), ScanRequest(where=A))
    now += 2
    assert remember(scan, ScanRequest(where=A)) == (ScanRequest(where=A),)


def test_searches_of_one_frame_stay_apart() -> None:
    scan = uuid.uuid4().hex
    remember(scan, ScanRequest("title:a", A))
    assert merge_requests(remember(scan, ScanRequest("title:b"))) == (
        ScanRequest("title:a", A),
        ScanRequest("title:b"),
    )


def test_a_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="remove it"):
        remember(uuid.uuid4().hex, ScanRequest())


def test_an_id_that_is_a_path_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"indextables\.scan is internal"):
        remember("../../etc/passwd", ScanRequest())
