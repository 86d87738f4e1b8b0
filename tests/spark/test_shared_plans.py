"""Why the source returns all filters to Spark (docs/decisions/0009): a source that keeps them gets wrong results.

If this fails with a new Spark release, that release plans each scan separately, and the source can keep its filters.
"""

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType


class Numbers(DataSource):
    """The numbers below ten."""

    @classmethod
    def name(cls) -> str:
        return "numbers-below-ten"

    def schema(self) -> str:
        return "n long"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return NumbersReader()


class NumbersReader(DataSourceReader):
    """Applies n = … exactly, and does not return that filter to Spark."""

    def __init__(self) -> None:
        self._wanted = range(10)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # the name is Spark's
        for each in filters:
            if isinstance(each, EqualTo):
                self._wanted = range(each.value, each.value + 1)
            else:
                yield each

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        del partition
        return ((number,) for number in self._wanted)


def test_all_scans_of_a_frame_read_what_the_last_one_requested(spark: SparkSession) -> None:
    spark.dataSource.register(Numbers)
    numbers = spark.read.format(Numbers.name()).load()
    both = numbers.where("n = 3").union(numbers.where("n = 7"))
    assert sorted(row.n for row in both.collect()) != [3, 7]
    assert numbers.where("n = 5").count() == 1
    assert numbers.count() != 10
