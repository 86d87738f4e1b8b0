"""Tables with names in a Hive Metastore of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS, hive_script
from support.spark_releases import needs_sources

pytestmark = [pytest.mark.soak, needs_sources]  # a metastore takes a minute, and 300 MB

# In a network of its own: a metastore listens on all addresses.
ALONE = ["unshare", "--map-root-user", "--net"]


def test_a_hive_metastore_keeps_names_that_are_created_filled_searched_and_dropped(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("a metastore needs Java, which is not installed")
    try:
        subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(
            f"no network of its own can be made here ({error}), and a metastore listens on all addresses"
        )
    done = subprocess.run(
        [*ALONE, sys.executable, "-W", "ignore", hive_script.__file__, tmp_path.as_posix()],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "caches")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    expected = [
        "found [1] 2",
        "managed 2",
        "shown ['logs', 'managed']",
        "other [1, 2]",
        "dropped 0 True False",
    ]
    assert done.stdout.splitlines()[-len(expected) :] == expected, done.stderr[-3000:]
