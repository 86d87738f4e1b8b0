"""The statements that show something about a table and change nothing."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Final

import pyarrow as pa

from indextables._version import __version__
from indextables.config import list_families
from indextables.config.settings import is_ours
from indextables.ops.describe import describe_log, describe_state
from indextables.ops.merge import merge_jobs
from indextables.statements import columns
from indextables.statements.caller import Caller
from indextables.statements.columns import schema_of
from indextables.statements.nodes import (
    DescribeEnvironment,
    DescribeHistory,
    DescribeMergeJobs,
    DescribeState,
    DescribeTransactionLog,
)
from indextables.storage.redaction import REDACTED
from indextables.table.history import history_table, read_commits


def run_describe_state(statement: DescribeState, caller: Caller) -> pa.Table:
    """See `ops.describe.describe_state`."""
    return describe_state(caller.snapshot(statement.target))


def run_describe_log(statement: DescribeTransactionLog, caller: Caller) -> pa.Table:
    """See `ops.describe_log.describe_log`."""
    return describe_log(caller.snapshot(statement.target), include_all=statement.includes_all)


def run_describe_history(statement: DescribeHistory, caller: Caller) -> pa.Table:
    """See `table.history`."""
    snapshot = caller.snapshot(statement.target)
    return history_table(read_commits(snapshot.context, snapshot.version))


def run_describe_merge_jobs(_: DescribeMergeJobs, __: Caller) -> pa.Table:
    """See `ops.merge.merge_jobs`."""
    return merge_jobs()


# DESCRIBE ENVIRONMENT: what statements run with here, without a single value that may be a credential.


_LIBRARIES: Final = (
    "datafusion",
    "fastavro",
    "lark",
    "numpy",
    "obstore",
    "pyarrow",
    "pyspark",
    "tantivy",
)
# Variables that stores and Spark look at. Their values are not shown: any of them may be a credential.
_VARIABLES: Final = ("AWS_", "AZURE_", "GOOGLE_", "INDEXTABLES_", "SPARK_")

_Row = tuple[str, str, str, str | None]


def run_describe_environment(_: DescribeEnvironment, caller: Caller) -> pa.Table:
    """Releases, settings and the names of everything else that has a say. Raises InvalidOptionError."""
    rows = [*_runtime(), *_libraries(), *_settings(caller), *_others(caller), *_variables()]
    schema = schema_of(columns.ENVIRONMENT)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _runtime() -> Iterator[_Row]:
    yield "runtime", "indextables", __version__, None
    yield "runtime", "python", platform.python_version(), None
    yield "runtime", "platform", platform.platform(), None
    yield "runtime", "processors", str(os.cpu_count() or 1), None
    yield "runtime", "executable", sys.executable, None


def _libraries() -> Iterator[_Row]:
    for name in _LIBRARIES:
        try:
            yield "library", name, metadata.version(name), None
        except metadata.PackageNotFoundError:
            continue  # an optional one


def _settings(caller: Caller) -> Iterator[_Row]:
    settings = caller.settings()
    for setting, value in settings.items():
        yield "setting", setting.key, setting.kind.show(value), settings.source(setting)
    for family in list_families():
        for ending, text in sorted(settings.family(family).items()):
            key = f"{family.prefix}{ending}"
            given = {name.lower() for name in caller.options}
            source = "option" if key.lower() in given else "session"
            yield "setting", key, REDACTED if family.secret else text, source


def _others(caller: Caller) -> Iterator[_Row]:
    """Options that are not settings of ours: those of the store, and of Hadoop."""
    for source, options in (
        ("option", caller.storage_options),
        ("option", caller.options),
        ("session", caller.session),
    ):
        for name in sorted(options):
            if options is caller.storage_options or not is_ours(name):
                yield "storage option", name, REDACTED, source


def _variables() -> Iterator[_Row]:
    for name in sorted(os.environ):
        if name.upper().startswith(_VARIABLES):
            yield "environment variable", name, REDACTED, None
