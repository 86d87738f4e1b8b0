"""REPAIR: write a new log for a table whose log is damaged or gone."""

from indextables.ops.repair.operation import RepairMode, RepairRequest, repair
from indextables.ops.repair.report import RepairResult

__all__ = ["RepairMode", "RepairRequest", "RepairResult", "repair"]
