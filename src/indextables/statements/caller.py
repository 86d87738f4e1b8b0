"""Who asks for a statement: the settings and credentials it runs with, its catalog, and who does the work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from indextables.config import Settings
from indextables.config.setting import Setting
from indextables.errors import InvalidStatementError
from indextables.ops.checkpoint.manifests_by_runner import with_manifests_by
from indextables.ops.runner import LocalRunner, Progress, Runner
from indextables.statements.nodes import TableName, Target
from indextables.storage import StoreLocation
from indextables.table import Snapshot, TableContext, load_snapshot

TableResolver = Callable[[TableName], str]
"""Finds the place of a table by its name in a catalog. Raises an IndexTablesError if there is no such table."""


# A dataclass, since a Struct would show all of its fields to whoever prints with rich: these may be secret.
@dataclass(frozen=True, slots=True)
class Caller:
    """What a statement runs with. `session` are the settings of a session, which options and properties outvote.

    Without a `runner`, threads of this process do the work, and `progress` is told how far they have come.
    """

    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    session: Mapping[str, str] = field(default_factory=dict, repr=False)
    runner: Runner | None = None
    resolve_table: TableResolver | None = None
    progress: Callable[[Progress], None] | None = None

    def settings(self) -> Settings:
        """The settings without those of any table. Raises InvalidOptionError."""
        return Settings.resolve(self.options, session=self.session)

    def context(self, target: Target) -> TableContext:
        """How a table is reached, whether it is there or not. Raises InvalidOptionError and InvalidStatementError."""
        options = {**self.session, **self.options}
        location = StoreLocation.of(self._path(target), storage_options=self.storage_options, options=options)
        return with_manifests_by(TableContext(location.open(), self.settings(), location), self.runner)

    def snapshot(self, target: Target) -> Snapshot:
        """The newest version of a table. Raises what `load_snapshot` raises."""
        return load_snapshot(self.context(target))

    def runner_for(self, context: TableContext, parallelism: Setting[int]) -> Runner:
        """Who does the work on a table: the caller's runner, or as many threads as a setting says."""
        return self.runner or LocalRunner(context.settings[parallelism], self.progress)

    def _path(self, target: Target) -> str:
        if not isinstance(target, TableName):
            return target.path
        if self.resolve_table is None:
            raise InvalidStatementError(
                f"{target} is the name of a table, and there is no catalog here to look it up in; give the path of "
                f"the table in quotes"
            )
        return self.resolve_table(target)
