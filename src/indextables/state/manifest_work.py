"""Who reads and writes manifests: this process, unless somebody else was asked to within a block."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from indextables.state.state_manifest import ManifestInfo
from indextables.storage import ObjectStore

if TYPE_CHECKING:
    # Readers need no writer.
    from indextables.state.manifest_group import ManifestForm, ManifestGroup, NewManifest


class ManifestWork(Protocol):
    """Reads and writes manifests by other means. None leaves it to this process."""

    def read(
        self,
        store: ObjectStore,
        state_version: int,
        manifests: Sequence[ManifestInfo],
        columns: Sequence[str] | None,
    ) -> list[pa.Table] | None:
        """The entries of each manifest, in order, dead ones included; without `columns`, foreign columns too."""

    def write(
        self, store: ObjectStore, form: "ManifestForm", groups: "Sequence[ManifestGroup]"
    ) -> "list[NewManifest] | None":
        """Upload the manifests of all groups, in order."""


_ELSEWHERE: ContextVar[ManifestWork | None] = ContextVar("indextables_manifest_work", default=None)


def work_elsewhere() -> ManifestWork | None:
    """Whoever was asked to work on manifests for this thread."""
    return _ELSEWHERE.get()


@contextmanager
def manifests_by(work: ManifestWork) -> Iterator[None]:
    """Let somebody else work on the manifests of this thread within the block."""
    token = _ELSEWHERE.set(work)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)
