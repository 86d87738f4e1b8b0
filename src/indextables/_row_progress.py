"""A bar that shows how many rows were written: their rate, the share of all, and the time left."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.progress import TaskID

_BATCH_ROWS: Final = 16 * 1024


class RowBar:
    """A bar on a console, from its first use until `stop`. Each description has a bar of its own."""

    def __init__(self, console: "Console") -> None:
        # rich is slow to import, and few callers show a bar.
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rows]:,} rows, {task.fields[rate]:,}/s"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._bar.start()

    def show(self, description: str, rows: int, done: int, total: int | None) -> None:
        """Show that `done` of `total` are done, in any unit; the total may be unknown."""
        if description not in self._tasks:
            self._tasks[description] = self._bar.add_task(description, total=total, rows=0, rate=0)
        task = self._tasks[description]
        elapsed = self._bar.tasks[self._bar.task_ids.index(task)].elapsed or 0
        rate = int(rows / elapsed) if elapsed else 0
        self._bar.update(task, completed=done, total=total, rows=rows, rate=rate)

    def stop(self) -> None:
        """Erase the bar."""
        self._bar.stop()


@contextmanager
def showing_rows(
    data: "pa.Table | pa.RecordBatchReader", *, is_shown: bool
) -> "Iterator[pa.Table | pa.RecordBatchReader]":
    """The same data; if `is_shown`, a bar on stderr follows how it is consumed."""
    if not is_shown:
        yield data
        return
    import pyarrow as pa
    from rich.console import Console

    total = None if isinstance(data, pa.RecordBatchReader) else data.num_rows
    reader = data if total is None else data.to_reader(_BATCH_ROWS)
    bar = RowBar(Console(stderr=True))

    def followed() -> "Iterator[pa.RecordBatch]":
        rows = 0
        for batch in reader:
            yield batch
            # The writer has taken the batch when it asks for the next one.
            rows += batch.num_rows
            bar.show("writing", rows, rows, total)

    try:
        yield pa.RecordBatchReader.from_batches(reader.schema, followed())
    finally:
        bar.stop()
