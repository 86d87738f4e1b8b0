"""The benchmarks, one file each, in the order in which they run."""

from benchmarks.benchmark import Benchmark
from benchmarks.suite.adding import ADDING
from benchmarks.suite.cloud import CLOUD
from benchmarks.suite.commits import COMMITS
from benchmarks.suite.compaction import COMPACTION
from benchmarks.suite.curve import CURVE
from benchmarks.suite.fresh import FRESH
from benchmarks.suite.manifests import MANIFESTS
from benchmarks.suite.many_splits import MANY_SPLITS
from benchmarks.suite.memory import MEMORY
from benchmarks.suite.opening import OPENING
from benchmarks.suite.operations import OPERATIONS
from benchmarks.suite.partition import PARTITION
from benchmarks.suite.publishing import PUBLISHING
from benchmarks.suite.replay import REPLAY
from benchmarks.suite.retained import RETAINED
from benchmarks.suite.row_changes import ROW_CHANGES
from benchmarks.suite.search import SEARCH
from benchmarks.suite.spark import SPARK
from benchmarks.suite.splits import SPLITS
from benchmarks.suite.startup import STARTUP

BENCHMARKS: tuple[Benchmark, ...] = (
    OPENING,
    MANIFESTS,
    CLOUD,
    REPLAY,
    COMMITS,
    ADDING,
    COMPACTION,
    RETAINED,
    MEMORY,
    PARTITION,
    FRESH,
    CURVE,
    SPLITS,
    SEARCH,
    MANY_SPLITS,
    STARTUP,
    SPARK,
    OPERATIONS,
    ROW_CHANGES,
    PUBLISHING,
)

__all__ = ["BENCHMARKS"]
