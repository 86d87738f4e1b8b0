"""Translating obstore's errors into ours, by their class and never by their text."""

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    InvalidPathError,
    JoinError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from indextables.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsupportedStoreError,
)
from indextables.storage.redaction import Redactor

CLIENT_ERRORS = (BaseError, OSError, ValueError, NotImplementedError)
"""Everything that a call of obstore may raise."""

# obstore does not tell time-outs, resets and server errors from each other, nor from a request that the
# server finds malformed: all of that is generic. Only the first group can be healed by trying again, but
# taking it for final would be the worse mistake.
_TRANSIENT = (GenericError, JoinError, AlreadyExistsError, PreconditionError)

_MAX_DETAIL = 300


def translate(error: Exception, what: str, redactor: Redactor) -> StorageError:
    """Our error for one of obstore's. `what` says what failed and where.

    The original is cleaned in place, so that the caller can chain it.
    """
    redactor.clean_error(error)
    detail = _first_line(error)
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"{what}: there is no such object")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return AccessDeniedError(
            f"{what}: the store refuses; check the credentials and their rights ({detail})"
        )
    if isinstance(error, NotSupportedError | NotImplementedError):
        return UnsupportedStoreError(f"{what}: the store cannot do this ({detail})")
    if isinstance(error, InvalidPathError):
        return StorageError(
            f"{what}: the store holds an object whose name no path can have; move it away ({detail})"
        )
    if isinstance(error, _TRANSIENT):
        return TransientStorageError(
            f"{what}: the store did not do it this time; if that goes on, check the endpoint, the region and the "
            f"credentials ({detail})"
        )
    return StorageError(f"{what}: {detail}")


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0].strip() or type(error).__name__
    return line if len(line) <= _MAX_DETAIL else f"{line[:_MAX_DETAIL]}…"
