"""The result of FSCK: findings, their severity and their order."""

from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Final

import msgspec
import pyarrow as pa

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Result, Status

_FINDING: Final = pa.struct(
    [pa.field(name, pa.string()) for name in ("severity", "code", "object", "message", "remedy")]
)

# The maximum number of findings with the same code: if a whole bucket is lost, one finding per file does not help.
_MOST_OF_A_KIND: Final = 100


class Severity(Enum):
    """The severity of a finding: data is lost or wrong, data is at risk, or for information only."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(msgspec.Struct, frozen=True):
    """A problem: its code, the object that has it, a message and a remedy."""

    severity: Severity
    code: str
    object: str
    message: str
    remedy: str = ""


class FsckResult(Result, frozen=True):
    """The result of `IndexTable.fsck`.

    Attributes:
        table_path: The URL of the table.
        version: The newest version.
        versions_checked: The number of readable versions that were checked.
        checkpoints_checked: The number of checkpoints that were checked.
        splits_checked: The number of live splits that were checked.
        is_deep: Whether every byte of the live splits was read.
        findings: The problems, worst first, each with its remedy.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`: no problem found, `PARTIAL`: warnings, `FAILED`: errors"),
        Column("version", pa.int64(), "the newest version"),
        Column("is_deep", pa.bool_(), "whether every byte of the live splits was read"),
        Column("versions_checked", pa.int64(), "the readable versions that were checked"),
        Column("checkpoints_checked", pa.int64(), "the checkpoints that were checked"),
        Column("splits_checked", pa.int64(), "the live splits that were checked"),
        Column("num_errors", pa.int64(), "findings that mean lost or wrong data"),
        Column("num_warnings", pa.int64(), "findings that put data at risk"),
        MESSAGE,
        Column("findings", pa.list_(_FINDING), "every finding, worst first, each with its remedy"),
    )

    table_path: str
    version: int
    versions_checked: int
    checkpoints_checked: int
    splits_checked: int
    is_deep: bool
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """FAILED if there are errors, PARTIAL if there are warnings only."""
        if self.errors:
            return Status.FAILED
        return Status.SUCCESS if self.is_clean else Status.PARTIAL

    @property
    def is_clean(self) -> bool:
        """Whether there are neither errors nor warnings."""
        return all(finding.severity is Severity.INFO for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that mean lost or wrong data."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def num_errors(self) -> int:
        """The number of errors."""
        return len(self.errors)

    @property
    def num_warnings(self) -> int:
        """The number of warnings."""
        return sum(finding.severity is Severity.WARNING for finding in self.findings)

    @property
    def message(self) -> str:
        """A one-line summary."""
        if self.is_clean:
            return "no problem was found"
        return f"{self.num_errors} errors and {self.num_warnings} warnings"


def ordered_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings, worst first. Beyond a limit per code, one finding counts the rest."""
    order = list(Severity)
    kept: list[Finding] = []
    counts: dict[str, int] = {}
    last: dict[str, Finding] = {}
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + 1
        last[finding.code] = finding
        if counts[finding.code] <= _MOST_OF_A_KIND:
            kept.append(finding)
    for code, count in counts.items():
        if count > _MOST_OF_A_KIND:
            more = f"{count - _MOST_OF_A_KIND} more of this kind"
            kept.append(Finding(last[code].severity, code, "…", more, last[code].remedy))
    return tuple(sorted(kept, key=lambda finding: order.index(finding.severity)))
