"""Keeping credentials out of what people read: a wrapper that does not show, a cleaner of texts."""

import hashlib
import secrets
from collections.abc import Iterable
from urllib.parse import quote, unquote

REDACTED = "***"

# Shorter values would be found inside ordinary words.
_MIN_LENGTH = 4

_SALT = secrets.token_bytes(32)


class Secret:
    """A text that shows neither in `repr` nor in `str`; `reveal` is for handing it to a client. Pickles."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({REDACTED})"

    def __str__(self) -> str:
        return REDACTED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        return Secret, (self._value,)


class Redactor:
    """Removes known secrets, plain and percent-encoded, from texts that others wrote."""

    __slots__ = ("_forms",)

    def __init__(self, known: Iterable[Secret]) -> None:
        forms: set[str] = set()
        for secret in known:
            value = secret.reveal()
            forms.update((value, quote(value, safe=""), quote(value), unquote(value)))
        # Longest first, so that no secret is left in part because a piece of it was replaced before.
        self._forms = sorted((form for form in forms if len(form) >= _MIN_LENGTH), key=len, reverse=True)

    def clean(self, text: str) -> str:
        """`text` with every known secret replaced."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text

    def clean_error(self, error: BaseException) -> None:
        """Clean an exception in place, so that it can be chained without showing what it must not."""
        error.args = tuple(self.clean(arg) if isinstance(arg, str) else arg for arg in error.args)


def fingerprint(parts: Iterable[str]) -> str:
    """A name for a list of texts that tells nothing about them, and nothing at all in another process."""
    digest = hashlib.blake2b(key=_SALT, digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()
