"""Deciding what a store's client is told, from all the places where people say it.

From strong to weak: storage_options, `spark.indextables.…` options, Hadoop's `fs.…` options, the environment.
Values are wrapped as soon as they are read, so that no step in between can show them.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from indextables.errors import InvalidOptionError
from indextables.storage.azure_account import with_account
from indextables.storage.credentials import CLIENT_SETTINGS, FAMILIES, PUBLIC_SETTINGS, Family
from indextables.storage.hadoop import Target, hadoop_settings
from indextables.storage.redaction import Secret
from indextables.storage.urls import Location, Scheme

Settings = dict[str, Secret]

_HADOOP_PREFIX = "spark.hadoop."
# The part of a shared access signature that signs, wherever the rest of it ends up.
_SIGNATURE = re.compile(r"(?<=sig=)[^&;]+")
# What the client reads from the environment unless it is told otherwise.
_SWITCHES = frozenset({"skip_signature", "use_azure_cli"})
_SERVICE_ACCOUNTS = frozenset({"service_account", "service_account_key"})
_TRUE = frozenset({"true", "1", "yes", "on", "t", "y"})


class ClientSettings(msgspec.Struct, frozen=True):
    """What a client is built from, under object_store's short names."""

    config: Settings
    client: Settings
    outvoted: frozenset[str]
    """Credentials of the environment that a stronger source replaced; the client must not pick them up."""

    def secrets(self) -> list[Secret]:
        """The values that must not appear in any text."""
        hidden = [value for name, value in self._all() if name not in PUBLIC_SETTINGS]
        return hidden + [Secret(part) for value in hidden for part in _SIGNATURE.findall(value.reveal())]

    def fingerprint_parts(self) -> list[str]:
        """Texts that differ if and only if the settings differ."""
        return [part for name, value in self._all() for part in (name, value.reveal())]

    def _all(self) -> list[tuple[str, Secret]]:
        return sorted((self.config | self.client).items(), key=lambda item: item[0])


def client_settings(
    location: Location, storage_options: Mapping[str, Secret], options: Mapping[str, Secret]
) -> ClientSettings:
    """The settings for a location. Stores without credentials (local disk, memory) have none.

    Raises InvalidOptionError for a name in `storage_options` that means nothing, for a missing account, and
    for plain HTTP to another machine that was not asked for. `options` may hold anything else beside.
    """
    family = FAMILIES.get(location.scheme)
    if family is None:
        return ClientSettings({}, {}, frozenset())
    named = _lower(storage_options)
    sparkish = _lower(options) | {name: value for name, value in named.items() if "." in name}
    spark = _from_table(family.spark_options, sparkish)
    environment = _from_environment(family)
    given = _from_storage_options(family, {name: value for name, value in named.items() if "." not in name})
    hadoop = hadoop_settings(
        location.scheme,
        {name.removeprefix(_HADOOP_PREFIX): value for name, value in sparkish.items()},
        Target(location.container, _account(location, (given, spark, environment))),
    )
    merged, outvoted = _merge(family, (given, spark, hadoop), environment)
    merged |= {name: Secret("false") for name in outvoted & _SWITCHES}
    if location.scheme is Scheme.AZURE:
        merged = with_account(location, merged)
    if location.scheme is Scheme.GCS and (outvoted - merged.keys()) & _SERVICE_ACCOUNTS:
        raise InvalidOptionError(
            f"{location}: the client would prefer GOOGLE_SERVICE_ACCOUNT of the environment to the credentials that "
            f"it was given; unset it"
        )
    if location.scheme is Scheme.S3 and _is_true(merged.pop("path_style_access", None)):
        merged["virtual_hosted_style_request"] = Secret("false")
    client = {name: merged.pop(name) for name in CLIENT_SETTINGS & merged.keys()}
    return ClientSettings(merged, _with_plain_http(location, merged, client), outvoted)


def _lower(options: Mapping[str, Secret]) -> Settings:
    return {name.lower(): value for name, value in options.items()}


def _from_storage_options(family: Family, options: Mapping[str, Secret]) -> Settings:
    found: Settings = {}
    for name, value in sorted(options.items(), key=_by_name):
        short = _short_name(family, name)
        if short is None and not _belongs_to_another_family(family, name):
            raise InvalidOptionError(
                f"storage option {name!r} means nothing to this kind of store; known are "
                f"{', '.join(sorted(family.settings | CLIENT_SETTINGS))}"
            )
        if short is not None:
            found[short] = value
    return found


def _from_table(table: Mapping[str, str], options: Mapping[str, Secret]) -> Settings:
    found: Settings = {}
    for name, short in table.items():
        if name in options:
            found.setdefault(short, options[name])
    return found


def _from_environment(family: Family) -> Settings:
    found: Settings = {}
    for name, value in sorted(os.environ.items()):
        if name.lower().startswith(family.prefixes):
            short = _short_name(family, name.lower())
            if short is not None and value:
                found[short] = Secret(value)
    return found


def _by_name(item: tuple[str, Secret]) -> str:
    """Of two names for one setting, the longer one is more specific and comes last: `endpoint_url_s3`."""
    return item[0]


def _short_name(family: Family, name: str) -> str | None:
    candidates = [name, *(name.removeprefix(prefix) for prefix in family.prefixes if name.startswith(prefix))]
    for candidate in candidates:
        short = family.aliases.get(candidate, candidate)
        if short in family.settings or short in CLIENT_SETTINGS:
            return short
    return None


def _belongs_to_another_family(family: Family, name: str) -> bool:
    """One dictionary of options may serve tables in several clouds."""
    others = (other for other in FAMILIES.values() if other is not family)
    return any(name.startswith(other.prefixes) for other in others)


def _account(location: Location, sources: Iterable[Settings]) -> str | None:
    if location.account is not None:
        return location.account.name
    return next((source["account_name"].reveal() for source in sources if "account_name" in source), None)


def _merge(
    family: Family, sources: Iterable[Settings], environment: Settings
) -> tuple[Settings, frozenset[str]]:
    """One setting from its strongest source, but all credentials from the strongest source that has any."""
    merged: Settings = {}
    credentials_found = False
    outvoted: frozenset[str] = frozenset()
    for source in (*sources, environment):
        credentials = family.credentials & source.keys()
        if credentials_found and source is environment:
            outvoted = credentials
        for name, value in source.items():
            if not (credentials_found and name in credentials):
                merged.setdefault(name, value)
        credentials_found = credentials_found or bool(credentials)
    return merged, outvoted


def _with_plain_http(location: Location, config: Settings, client: Settings) -> Settings:
    endpoint = config.get("endpoint") or config.get("base_url")
    if endpoint is None or not endpoint.reveal().lower().startswith("http://"):
        return client
    if not _is_true(client.get("allow_http")) and not _is_loopback(
        urlsplit(endpoint.reveal()).hostname or ""
    ):
        raise InvalidOptionError(
            f"{location}: the endpoint is plain HTTP on another machine, so that anybody in between can read "
            f"what is sent; use https:// or set the storage option allow_http=true"
        )
    return client | {"allow_http": Secret("true")}


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_true(value: Secret | None) -> bool:
    return value is not None and value.reveal().strip().lower() in _TRUE
