"""Readers of Delta Lake that we did not write: delta-rs, and DuckDB with its extension."""

from pathlib import Path

import deltalake
import duckdb
import duckdb_extension_delta
import pyarrow as pa

_EXTENSIONS = Path(duckdb_extension_delta.__file__).parent / "extensions"


def delta_rows(path: Path, version: int | None = None) -> pa.Table:
    """The rows as delta-rs reads them, with its own engine: that one knows deletion vectors."""
    table = deltalake.DeltaTable(str(path), version=version)
    found = pa.table(deltalake.QueryBuilder().register("published", table).execute("SELECT * FROM published"))
    # DataFusion answers with views, which few functions of pyarrow take.
    return found.cast(pa.schema([pa.field(field.name, _without_view(field.type)) for field in found.schema]))


def delta_ids(path: Path, version: int | None = None) -> list[int]:
    return sorted(delta_rows(path, version)["id"].to_pylist())


class DuckDbDelta:
    """DuckDB, reading one Delta table as `published`."""

    def __init__(self, path: Path) -> None:
        [extension] = _EXTENSIONS.glob("*/delta.duckdb_extension")
        self._connection = duckdb.connect()
        self._connection.execute(f"LOAD '{extension}'")
        self._connection.execute(f"CREATE VIEW published AS SELECT * FROM delta_scan('{path.as_uri()}')")

    def rows(self, query: str) -> list[tuple]:
        return self._connection.execute(query).fetchall()

    def ids(self, where: str = "true") -> list[int]:
        return sorted(number for (number,) in self.rows(f"SELECT id FROM published WHERE {where}"))


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return pa.list_(_without_view(kind.value_type)) if pa.types.is_list(kind) else kind
