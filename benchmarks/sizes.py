"""The sizes of the benchmarks: full sizes, for which the goals are defined, and smaller ones."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Goals are judged only at the full sizes: ratios depend on the size."""

    name: str
    are_goals_judged: bool
    table_files: int
    large_table_files: int
    partition_files: int
    memory_files: int
    added_files: int
    curve_files: tuple[int, ...]
    most_iceberg_files: int
    replayed_versions: tuple[int, ...]
    retained_states: tuple[int, int]
    commits: int
    writers: int
    commits_per_writer: int
    rows: int
    few_rows: int
    curve_rows: tuple[int, ...]
    queries: int
    searched_splits: tuple[int, int]
    spark_rows: int
    merged_partitions: int
    merged_splits: int
    merged_rows: int
    purged_files: int
    changed_rows: int
    deleted_rows: int
    upserted_rows: int
    runs: int
    slow_runs: int


FULL = Sizes(
    name="full",
    are_goals_judged=True,
    table_files=70_000,
    large_table_files=1_000_000,
    partition_files=1_000,
    memory_files=100_000,
    added_files=100,
    curve_files=(10_000, 100_000, 1_000_000),
    most_iceberg_files=100_000,
    replayed_versions=(10, 100, 1_000, 10_000),
    retained_states=(20, 750),
    commits=100,
    writers=8,
    commits_per_writer=20,
    rows=500_000,
    few_rows=1_000,
    curve_rows=(10_000, 100_000),
    queries=20,
    searched_splits=(1_000, 10_000),
    spark_rows=5_000_000,
    merged_partitions=50,
    merged_splits=1_000,
    merged_rows=200_000,
    purged_files=100_000,
    changed_rows=1_000_000,
    deleted_rows=1_000,
    upserted_rows=10_000,
    runs=15,
    slow_runs=3,
)

QUICK = Sizes(
    name="quick",
    are_goals_judged=False,
    table_files=7_000,
    large_table_files=100_000,
    partition_files=100,
    memory_files=10_000,
    added_files=100,
    curve_files=(1_000, 10_000, 100_000),
    most_iceberg_files=10_000,
    replayed_versions=(10, 100, 1_000),
    retained_states=(20, 200),
    commits=30,
    writers=4,
    commits_per_writer=5,
    rows=50_000,
    few_rows=1_000,
    curve_rows=(10_000,),
    queries=20,
    searched_splits=(100, 200),
    spark_rows=200_000,
    merged_partitions=10,
    merged_splits=100,
    merged_rows=20_000,
    purged_files=10_000,
    changed_rows=50_000,
    deleted_rows=1_000,
    upserted_rows=1_000,
    runs=3,
    slow_runs=1,
)

# For the tests of the harness itself.
TINY = Sizes(
    name="tiny",
    are_goals_judged=False,
    table_files=100,
    large_table_files=100,
    partition_files=10,
    memory_files=100,
    added_files=10,
    curve_files=(100,),
    most_iceberg_files=100,
    replayed_versions=(10,),
    retained_states=(2, 5),
    commits=3,
    writers=2,
    commits_per_writer=2,
    rows=500,
    few_rows=100,
    curve_rows=(200,),
    queries=2,
    searched_splits=(20, 40),
    spark_rows=500,
    merged_partitions=2,
    merged_splits=4,
    merged_rows=100,
    purged_files=20,
    changed_rows=500,
    deleted_rows=10,
    upserted_rows=20,
    runs=1,
    slow_runs=1,
)
