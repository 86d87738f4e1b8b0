"""A table's properties as they may be shown: whoever wrote a credential into them, it goes no further."""

from collections.abc import Mapping

from indextables.config.settings import FamilyMatch, SettingMatch, find
from indextables.log.replay import SCHEMA_PROPERTY_PREFIX
from indextables.storage.redaction import REDACTED

# Parts of the names that other systems give to credentials.
_SECRET_WORDS = (
    "accesskey",
    "access.key",
    "access_key",
    "accountkey",
    "account.key",
    "account_key",
    "bearer",
    "connectionstring",
    "credential",
    "passw",
    "privatekey",
    "sas",
    "secret",
    "token",
)


def shown_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties in the order of their keys, without the values of credentials."""
    return {key: REDACTED if _is_secret(key) else configuration[key] for key in sorted(configuration)}


def is_schema_registry(key: str) -> bool:
    """Whether a property is the log's own registry of doc mappings."""
    return key.startswith(SCHEMA_PROPERTY_PREFIX)


def _is_secret(key: str) -> bool:
    match find(key):
        case SettingMatch():
            return False
        case FamilyMatch(family):
            return family.secret
        case None:
            return any(word in key.lower() for word in _SECRET_WORDS) and not is_schema_registry(key)
