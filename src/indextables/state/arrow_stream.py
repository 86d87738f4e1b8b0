"""Entries on their way to another process: an Arrow stream, compressed, and of a slice no more than the slice."""

import pyarrow as pa


def to_stream(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_stream(stream: bytes) -> pa.Table:
    """The table of `to_stream`."""
    return pa.ipc.open_stream(stream).read_all()
