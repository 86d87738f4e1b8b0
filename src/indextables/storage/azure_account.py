"""What is particular about Azure: the account comes from the URL, a setting or a connection string."""

from indextables.errors import InvalidOptionError
from indextables.storage.redaction import Secret
from indextables.storage.urls import Location

Settings = dict[str, Secret]

_PUBLIC_CLOUD = "core.windows.net"
_FABRIC = "fabric.microsoft.com"
_EMULATOR_ACCOUNT = "devstoreaccount1"

# The first of these that is set says how to authenticate; the client is told, so that it does not choose
# another one that it finds in the environment.
_CREDENTIAL_TYPES = {
    "token": "bearer_token",
    "account_key": "access_key",
    "client_secret": "client_secret",
    "sas_token": "sas_token",
}
_CONNECTION_STRING = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_token",
    "blobendpoint": "endpoint",
}


def with_account(location: Location, settings: Settings) -> Settings:
    """Settings that name the account, where it is, and how to authenticate. Raises InvalidOptionError."""
    connection = settings.pop("connection_string", None)
    completed = settings if connection is None else _from_connection_string(connection) | settings
    emulated = completed.get("use_emulator")
    if location.account is not None:
        completed = completed | {"account_name": Secret(location.account.name)}
    elif emulated is not None and emulated.reveal().lower() == "true":
        completed = {"account_name": Secret(_EMULATOR_ACCOUNT), "allow_http": Secret("true")} | completed
    if "account_name" not in completed:
        raise InvalidOptionError(
            f"{location}: no storage account; set the storage option account_name, or write "
            f"abfss://{location.container}@<account>.dfs.core.windows.net/…"
        )
    return _with_credential_type(_with_endpoint(location, completed))


def _from_connection_string(connection: Secret) -> Settings:
    fields = {}
    for field in connection.reveal().split(";"):
        name, separator, value = field.partition("=")
        if separator:
            fields[name.strip().lower()] = value.strip()
    if fields.get("usedevelopmentstorage", "").lower() == "true":
        return {"use_emulator": Secret("true")}
    found = {short: Secret(fields[name]) for name, short in _CONNECTION_STRING.items() if fields.get(name)}
    if "account_name" not in found and "endpoint" not in found:
        raise InvalidOptionError("the Azure connection string names no account (AccountName=…)")
    suffix = fields.get("endpointsuffix", _PUBLIC_CLOUD)
    protocol = fields.get("defaultendpointsprotocol", "https")
    if "endpoint" not in found and (suffix, protocol) != (_PUBLIC_CLOUD, "https"):
        found["endpoint"] = Secret(f"{protocol}://{found['account_name'].reveal()}.blob.{suffix}")
    if "account_name" not in found:
        host = found["endpoint"].reveal().partition("://")[2]
        found["account_name"] = Secret(host.partition(".")[0])
    return found


def _with_endpoint(location: Location, settings: Settings) -> Settings:
    account = location.account
    if account is None or account.suffix == _PUBLIC_CLOUD or "endpoint" in settings:
        return settings
    if account.suffix == _FABRIC:
        return settings | {"use_fabric_endpoint": Secret("true")}
    return settings | {"endpoint": Secret(f"https://{account.name}.blob.{account.suffix}")}


def _with_credential_type(settings: Settings) -> Settings:
    for name, credential_type in _CREDENTIAL_TYPES.items():
        if name in settings:
            return {"credential_type": Secret(credential_type)} | settings
    return settings
