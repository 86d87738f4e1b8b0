"""PUBLISH: a log of another format in the table's folder, whose data files are the splits of the table."""

from indextables.ops.publish.operation import publish, publish_after_commit, trim_published
from indextables.ops.publish.report import PublishFormat, PublishRequest, PublishResult

__all__ = [
    "PublishFormat",
    "PublishRequest",
    "PublishResult",
    "publish",
    "publish_after_commit",
    "trim_published",
]
