"""Why filters are returned to Spark (docs/decisions/0009): what happens to a source that takes them, as it may.

If this fails with a new release of Spark, that one plans every scan by itself, and the source can take its filters.
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
    """Answers n = … exactly, and tells Spark so."""

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


def test_scans_of_one_frame_read_what_the_last_of_them_asked_for(spark: SparkSession) -> None:
    spark.dataSource.register(Numbers)
    numbers = spark.read.format(Numbers.name()).load()
    both = numbers.where("n = 3").union(numbers.where("n = 7"))
    assert sorted(row.n for row in both.collect()) != [3, 7]
    assert numbers.where("n = 5").count() == 1
    assert numbers.count() != 10
