"""Hadoop's settings for file systems (`fs.s3a.…`, `fs.azure.…`, `fs.gs.…`), under object_store's short names.

Option names are in lower case and without `spark.hadoop.`.
"""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from indextables.storage.redaction import Secret
from indextables.storage.urls import Scheme

Settings = dict[str, Secret]

_S3A = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint": "endpoint",
    "endpoint.region": "region",
    "path.style.access": "path_style_access",
}
_AZURE_OAUTH = {
    "fs.azure.account.oauth2.client.id": "client_id",
    "fs.azure.account.oauth2.client.secret": "client_secret",
    "fs.azure.account.oauth2.client.endpoint": "tenant_id",
}
_AZURE_KEY = "fs.azure.account.key."
_AZURE_SAS = "fs.azure.sas.fixed.token"
_GCS = {
    "fs.gs.auth.service.account.json.keyfile": "service_account",
    "google.cloud.auth.service.account.json.keyfile": "service_account",
}


class Target(msgspec.Struct, frozen=True):
    """The bucket or account to find settings for: options may cover several."""

    container: str
    account: str | None


def hadoop_settings(scheme: Scheme, options: Mapping[str, Secret], target: Target) -> Settings:
    """Return the settings for a store that the options contain."""
    read = _READERS.get(scheme)
    return read(options, target) if read is not None else {}


def _s3(options: Mapping[str, Secret], target: Target) -> Settings:
    # Settings of the bucket take precedence over general ones.
    prefixes = (f"fs.s3a.bucket.{target.container.lower()}.", "fs.s3a.")
    found: Settings = {}
    for prefix in prefixes:
        for name, short in _S3A.items():
            if prefix + name in options:
                found.setdefault(short, options[prefix + name])
    plain_http = any(
        prefix + "connection.ssl.enabled" in options
        and options[prefix + "connection.ssl.enabled"].reveal().lower() == "false"
        for prefix in prefixes
    )
    if plain_http:
        found["allow_http"] = Secret("true")
    if "endpoint" in found and "://" not in found["endpoint"].reveal():
        scheme = "http" if plain_http else "https"
        found["endpoint"] = Secret(f"{scheme}://{found['endpoint'].reveal()}")
    return found


def _azure(options: Mapping[str, Secret], target: Target) -> Settings:
    account = target.account or _only_account(options)
    if account is None:
        return _azure_oauth(options, "")
    found = _azure_oauth(options, account) or _azure_oauth(options, "")
    for name, value in options.items():
        if name.startswith(_AZURE_KEY) and _account_of(name, _AZURE_KEY) == account:
            found["account_key"] = value
        elif name == _AZURE_SAS or _account_of(name, f"{_AZURE_SAS}.") == account:
            found["sas_token"] = value
    return found | {"account_name": Secret(account)} if found else found


def _azure_oauth(options: Mapping[str, Secret], account: str) -> Settings:
    found: Settings = {}
    for option, short in _AZURE_OAUTH.items():
        for name, value in options.items():
            if (not account and name == option) or (account and _account_of(name, f"{option}.") == account):
                found[short] = value
    if "tenant_id" in found:
        # Hadoop uses the tenant's token endpoint: https://<authority>/<tenant>/oauth2/token.
        path = urlsplit(found["tenant_id"].reveal()).path
        found["tenant_id"] = Secret(path.strip("/").partition("/")[0])
    return found


def _only_account(options: Mapping[str, Secret]) -> str | None:
    accounts = {_account_of(name, _AZURE_KEY) for name in options if name.startswith(_AZURE_KEY)}
    return accounts.pop() if len(accounts) == 1 else None


def _account_of(name: str, prefix: str) -> str | None:
    """Return the account after the prefix: `<account>.dfs.core.windows.net` or `<account>`."""
    return name[len(prefix) :].partition(".")[0] if name.startswith(prefix) else None


def _gcs(options: Mapping[str, Secret], target: Target) -> Settings:  # noqa: ARG001 - one keyfile for all buckets
    return {short: options[name] for name, short in _GCS.items() if name in options}


_READERS: Mapping[Scheme, Callable[[Mapping[str, Secret], Target], Settings]] = {
    Scheme.S3: _s3,
    Scheme.AZURE: _azure,
    Scheme.GCS: _gcs,
}
