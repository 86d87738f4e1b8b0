"""The caller of a statement: its settings and credentials, its catalog, and the runner that executes its tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from indextables.config import Settings
from indextables.errors import InvalidStatementError, TableNotFoundError
from indextables.index_table import IndexTable, open_context
from indextables.ops.checkpoint.manifests_by_runner import with_manifests_by
from indextables.ops.runner import Progress, Runner
from indextables.statements.nodes import Relation, TableName, TablePath, Target
from indextables.storage import StoreLocation
from indextables.table import TableContext

TableResolver = Callable[[TableName], str]
"""Returns the path of a table in a catalog. Raises an IndexTablesError if the catalog has no such table."""


RelationReader = Callable[[str], pa.Table]
"""Returns the rows of a name or a subquery in SQL."""


# A dataclass, because rich prints all fields of a Struct, and these may hold credentials.
@dataclass(frozen=True, slots=True)
class Caller:
    """What a statement runs with. Options and table properties take precedence over the settings of the `session`.

    Without a `runner`, threads of this process execute the tasks and report to `progress`.
    """

    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    session: Mapping[str, str] = field(default_factory=dict, repr=False)
    runner: Runner | None = None
    resolve_table: TableResolver | None = None
    read_relation: RelationReader | None = None
    progress: Callable[[Progress], None] | None = None

    def settings(self) -> Settings:
        """The settings without those of any table. Raises InvalidOptionError."""
        return Settings.resolve(self.options, session=self.session)

    def context(self, target: Target) -> TableContext:
        """The context of a table, which need not exist. Raises InvalidOptionError and InvalidStatementError."""
        options = {**self.session, **self.options}
        location = StoreLocation.of(self._path(target), storage_options=self.storage_options, options=options)
        return with_manifests_by(TableContext(location.open(), self.settings(), location), self.runner)

    def table(self, target: Target) -> IndexTable:
        """The newest version of a table. Raises what `load_snapshot` raises."""
        return open_context(self.context(target))

    def rows(self, relation: Relation) -> pa.Table:
        """The rows of a source. Raises InvalidStatementError for a name or a subquery without a catalog."""
        if relation.path is not None:
            return self._rows_at(relation.path)
        assert relation.sql is not None
        if self.read_relation is None:
            raise InvalidStatementError(
                f"there is no catalog to look {relation.sql} up in; write the path of a table or of files in quotes"
            )
        return self.read_relation(relation.sql)

    def _rows_at(self, path: str) -> pa.Table:
        try:
            return self.table(TablePath(path)).to_arrow()
        except TableNotFoundError:
            # Imported here, because other statements do not read files.
            from indextables.ingest.rows import read_files

            return read_files(path, self.storage_options, {**self.session, **self.options})

    def _path(self, target: Target) -> str:
        if not isinstance(target, TableName):
            return target.path
        if self.resolve_table is None:
            raise InvalidStatementError(
                f"{target} is a table name, and there is no catalog to look it up in; write the path of the table in "
                f"quotes"
            )
        return self.resolve_table(target)
