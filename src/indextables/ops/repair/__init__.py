"""REPAIR: write a new log for a table whose log is damaged or gone."""

from indextables.ops.repair.operation import RepairMode, repair
from indextables.ops.repair.report import RepairReport

__all__ = ["RepairMode", "RepairReport", "repair"]
