"""A table's store inside a task, which may be executed in another process."""

from indextables.errors import InvalidOptionError
from indextables.storage import ObjectStore, StoreLocation
from indextables.table import TableContext


class TaskStore:
    """The very store of a table in this process; unpickled in another one, it is opened there from its location.

    Pickling raises InvalidOptionError for a table that was not opened by a path.
    """

    __slots__ = ("_location", "store")

    def __init__(self, store: ObjectStore, location: StoreLocation | None) -> None:
        self.store = store
        self._location = location

    @classmethod
    def of(cls, context: TableContext) -> "TaskStore":
        """The store of a table."""
        return cls(context.store, context.location)

    def __reduce__(self) -> tuple[object, ...]:
        if self._location is None:
            raise InvalidOptionError(
                f"{self.store.url}: a store that was handed over as an object cannot go to another process; open "
                f"the table by its path"
            )
        return (_opened, (self._location,))


def _opened(location: StoreLocation) -> TaskStore:
    return TaskStore(location.open(), location)
