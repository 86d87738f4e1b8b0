"""How a table is reached: its store, the caller's settings and the process-wide caches."""

import msgspec
from msgspec.structs import replace

from indextables.config import Settings
from indextables.config.registry import CHECKPOINT_PARALLELISM, TRANSACTION_CACHE_ENABLED
from indextables.log.actions import Metadata
from indextables.state.manifest_executor import ManifestExecutor
from indextables.storage import ObjectStore, StoreLocation
from indextables.table.cache import NO_CACHE, LogCache, process_cache


class TableContext(msgspec.Struct, frozen=True):
    """What every operation on a table needs. Cheap to make; holds no state of the table itself.

    `location` is where the store can be opened again in another process; None if only this one can reach it.
    `manifest_executor` reads and writes the manifests of a very large state; without one, this process does.
    """

    store: ObjectStore
    settings: Settings
    location: StoreLocation | None = None
    manifest_executor: ManifestExecutor | None = None

    @property
    def url(self) -> str:
        """The table's root, for messages."""
        return self.store.url

    @property
    def cache(self) -> LogCache:
        """The caches of this process, or caches that keep nothing if they are switched off."""
        return process_cache() if self.settings[TRANSACTION_CACHE_ENABLED] else NO_CACHE

    @property
    def read_parallelism(self) -> int:
        """How many log files are fetched at once."""
        return self.settings[CHECKPOINT_PARALLELISM]

    def with_properties(self, metadata: Metadata) -> "TableContext":
        """The same table, with its own properties among the settings."""
        return replace(self, settings=self.settings.with_table_properties(metadata.configuration))
