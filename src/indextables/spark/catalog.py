"""Tables with names: what the catalog of a session says of them.

For a table of a Python data source, Spark's own DESCRIBE shows neither the provider nor the location. A classic session
is asked through its JVM; a Connect session by SHOW TABLE EXTENDED, which shows both.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from indextables.spark.types import quote_name

# The names of one table have at most a catalog and a database in front.
_MAX_PARTS: Final = 3
_SESSION_CATALOG: Final = "spark_catalog"

_PROVIDER: Final = "Provider: "
_LOCATION: Final = "Location: "


class CatalogTable(msgspec.Struct, frozen=True):
    """A table or view of the catalog; a view has neither a provider nor a location."""

    provider: str | None
    location: str | None


def find_catalog_table(spark: SparkSession, parts: Sequence[str]) -> CatalogTable | None:
    """What a name means in the session's catalog; None if there is no such table or view.

    A temporary view hides a table of the same name. Only the session's own catalog is asked.
    """
    if not 1 <= len(parts) <= _MAX_PARTS:
        return None
    if len(parts) == _MAX_PARTS:
        if parts[0].lower() != _SESSION_CATALOG:
            return None
        parts = parts[1:]
    jvm_session = getattr(spark, "_jsparkSession", None)
    return _ask_server(spark, parts) if jvm_session is None else _ask_jvm(jvm_session, parts)


def qualified(parts: Sequence[str]) -> str:
    """The parts of a name, quoted for Spark SQL."""
    return ".".join(map(quote_name, parts))


def _ask_jvm(jvm_session: Any, parts: Sequence[str]) -> CatalogTable | None:
    state = jvm_session.sessionState()
    try:
        name, catalog = state.sqlParser().parseTableIdentifier(qualified(parts)), state.catalog()
        if catalog.isTempView(name):
            return CatalogTable(None, None)
        if not catalog.tableExists(name):
            return None
        table = catalog.getTableMetadata(name)
        provider, location = table.provider(), table.storage().locationUri()
    except (PySparkException, Py4JError):
        return None
    return CatalogTable(
        str(provider.get()) if provider.isDefined() else None,
        str(location.get().toString()) if location.isDefined() else None,
    )


def _ask_server(spark: SparkSession, parts: Sequence[str]) -> CatalogTable | None:
    *database, table = parts
    inside = f"IN {qualified(database)} " if database else ""
    pattern = table.replace("\\", "\\\\").replace("'", "\\'")
    try:
        rows = spark.sql(f"SHOW TABLE EXTENDED {inside}LIKE '{pattern}'").collect()
    except PySparkException:
        return None
    found = [row for row in rows if row["tableName"].lower() == table.lower()]
    if not found:
        return None
    row = next((row for row in found if row["isTemporary"]), found[0])
    lines = row["information"].splitlines()
    # The schema, which follows the other lines, may have columns of any name.
    lines = lines[: next((number for number, line in enumerate(lines) if line.startswith("Schema: ")), None)]
    return CatalogTable(_after(_PROVIDER, lines), _after(_LOCATION, lines))


def _after(label: str, lines: Sequence[str]) -> str | None:
    return next((line.removeprefix(label) for line in lines if line.startswith(label)), None)
