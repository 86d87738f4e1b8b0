"""The statements that show something about a table and change nothing."""

import pyarrow as pa

from indextables.ops.describe import describe_log, describe_state
from indextables.ops.merge import merge_jobs
from indextables.sql.caller import Caller
from indextables.sql.statements import (
    DescribeHistory,
    DescribeMergeJobs,
    DescribeState,
    DescribeTransactionLog,
)
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
