"""What a check of a table finds."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec
import pyarrow as pa

FINDINGS_SCHEMA = pa.schema(
    [
        pa.field("severity", pa.string(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("object", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("remedy", pa.string(), nullable=False),
    ]
)

# A table that lost a bucket has no use for a line about each of its files.
_MOST_OF_A_KIND: Final = 100


class Severity(Enum):
    """How bad a finding is: data is lost or wrong, something works by luck, or somebody may want to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be: which object, what about it, and what to do."""

    severity: Severity
    code: str
    object: str
    message: str
    remedy: str = ""


class FsckReport(msgspec.Struct, frozen=True):
    """The outcome of a check. `versions_checked` are those that can be read, `splits_checked` the live ones."""

    url: str
    version: int
    versions_checked: int
    checkpoints_checked: int
    splits_checked: int
    is_deep: bool
    findings: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong: what is merely worth knowing does not count."""
        return all(finding.severity is Severity.INFO for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that mean lost or wrong data."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    def to_arrow(self) -> pa.Table:
        """One row for each finding, the worst first."""
        rows = [
            {
                "severity": finding.severity.value,
                "code": finding.code,
                "object": finding.object,
                "message": finding.message,
                "remedy": finding.remedy,
            }
            for finding in self.findings
        ]
        return pa.Table.from_pylist(rows, schema=FINDINGS_SCHEMA)


def ordered_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings, the worst first; of very many of a kind, the first ones and how many more there are."""
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
