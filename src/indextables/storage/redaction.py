"""Keeps credentials out of messages and logs: a wrapper that hides a value, and a redactor of texts."""

import hashlib
import secrets
from collections.abc import Iterable
from urllib.parse import quote, unquote

REDACTED = "***"

# Shorter values occur inside ordinary words.
_MIN_LENGTH = 4

_SALT = secrets.token_bytes(32)


class Secret:
    """A text that neither `repr` nor `str` shows; `reveal` returns it. Picklable."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
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
    """Removes known secrets, plain and percent-encoded, from texts."""

    __slots__ = ("_forms",)

    def __init__(self, known: Iterable[Secret]) -> None:
        forms: set[str] = set()
        for secret in known:
            value = secret.reveal()
            forms.update((value, quote(value, safe=""), quote(value), unquote(value)))
        # Longest first: replacing a part of a longer secret would leave the rest.
        self._forms = sorted((form for form in forms if len(form) >= _MIN_LENGTH), key=len, reverse=True)

    def clean(self, text: str) -> str:
        """Replace every known secret in `text`."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text

    def clean_error(self, error: BaseException) -> None:
        """Clean an exception in place, so it can be chained without revealing a secret."""
        error.args = tuple(self.clean(arg) if isinstance(arg, str) else arg for arg in error.args)


def fingerprint(parts: Iterable[str]) -> str:
    """Return a salted digest of texts: equal for equal texts within this process, and revealing nothing."""
    digest = hashlib.blake2b(key=_SALT, digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()
