"""The settings of a store's client: names, sources and precedence.

`client_settings` merges four sources, strongest first: storage_options, `spark.indextables.…` options, Hadoop's `fs.…`
options (`hadoop`), and the environment. Every value is wrapped in a `Secret` as soon as it is read. Names are compared
in lower case.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from indextables.config.registry import STORAGE_AWS, STORAGE_AZURE, STORAGE_GCP, STORAGE_S3
from indextables.config.setting import OLDER_PREFIX, PREFIX
from indextables.errors import InvalidOptionError
from indextables.storage.hadoop import Target, hadoop_settings
from indextables.storage.redaction import Secret
from indextables.storage.urls import Location, Scheme

Settings = dict[str, Secret]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- names --------------------------------------------------------------------------------------------

CLIENT_SETTINGS = _names(
    """allow_http allow_invalid_certificates connect_timeout http1_only http2_only pool_idle_timeout
    pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url read_timeout root_certificate timeout
    user_agent"""
)
"""Settings of the HTTP client, which every family accepts."""

PUBLIC_SETTINGS = (CLIENT_SETTINGS - {"proxy_url"}) | _names(
    """account_name authority_host base_url checksum_algorithm conditional_put copy_if_not_exists
    credential_type default_region disable_bulk_delete disable_tagging endpoint imdsv1_fallback list_order
    metadata_endpoint path_style_access region request_payer s3_express server_side_encryption skip_signature
    sse_bucket_key_enabled endpoint_url_sts unsigned_payload use_azure_cli use_emulator use_fabric_endpoint
    virtual_hosted_style_request"""
)
"""Settings whose values may appear in messages. Every other value is a secret."""


class Family(msgspec.Struct, frozen=True):
    """The settings of one kind of store, and their names."""

    prefixes: tuple[str, ...]
    """Prefixes of short names in storage_options and in the environment, longest first."""
    settings: frozenset[str]
    """The short names of object_store."""
    aliases: Mapping[str, str]
    """Other short names."""
    credentials: frozenset[str]
    """Settings that authenticate. They all come from one source: a mix of two sources matches no account."""
    spark_options: Mapping[str, str]
    """Options of IndexTables for Spark, strongest first, with their short names."""


S3 = Family(
    prefixes=("aws_",),
    settings=_names(
        """access_key_id checksum_algorithm conditional_put container_authorization_token_file
        container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region
        disable_bulk_delete disable_tagging endpoint imdsv1_fallback metadata_endpoint path_style_access
        list_order region request_payer role_arn role_session_name s3_express secret_access_key server_side_encryption
        session_token skip_signature sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id
        endpoint_url_sts unsigned_payload virtual_hosted_style_request web_identity_token_file"""
    ),
    aliases={
        "endpoint_url_s3": "endpoint",
        "endpoint_url": "endpoint",
        "force_path_style": "path_style_access",
        "sts_endpoint": "endpoint_url_sts",
        "token": "session_token",
    },
    credentials=frozenset({"access_key_id", "secret_access_key", "session_token", "skip_signature"}),
    spark_options={
        f"{STORAGE_AWS.prefix}accesskey": "access_key_id",
        f"{STORAGE_AWS.prefix}secretkey": "secret_access_key",
        f"{STORAGE_AWS.prefix}sessiontoken": "session_token",
        f"{STORAGE_AWS.prefix}region": "region",
        f"{STORAGE_S3.prefix}endpoint": "endpoint",
        f"{STORAGE_S3.prefix}serviceurl": "endpoint",
        f"{STORAGE_AWS.prefix}endpoint": "endpoint",
        f"{STORAGE_S3.prefix}pathstyleaccess": "path_style_access",
        f"{STORAGE_AWS.prefix}pathstyleaccess": "path_style_access",
        f"{STORAGE_AWS.prefix}forcepathstyle": "path_style_access",
    },
)

AZURE = Family(
    prefixes=("azure_storage_", "azure_"),
    settings=_names(
        """account_key account_name authority_host client_id client_secret connection_string credential_type
        disable_tagging encryption_key endpoint fabric_cluster_identifier fabric_session_token
        fabric_token_service_url fabric_workload_host federated_token_file msi_endpoint msi_resource_id
        object_id sas_token skip_signature tenant_id token use_azure_cli use_emulator use_fabric_endpoint"""
    ),
    aliases={
        "account": "account_name",
        "access_key": "account_key",
        "key": "account_key",
        "master_key": "account_key",
        "authority_id": "tenant_id",
        "bearer_token": "token",
        "identity_endpoint": "msi_endpoint",
        "sas_key": "sas_token",
    },
    # The tenant and the client's id do not authenticate: they may come from another source than the client's secret.
    credentials=_names(
        """account_key client_secret connection_string credential_type federated_token_file sas_token
        skip_signature token use_azure_cli"""
    ),
    spark_options={
        f"{STORAGE_AZURE.prefix}accountname": "account_name",
        f"{STORAGE_AZURE.prefix}accountkey": "account_key",
        f"{STORAGE_AZURE.prefix}connectionstring": "connection_string",
        f"{STORAGE_AZURE.prefix}tenantid": "tenant_id",
        f"{STORAGE_AZURE.prefix}clientid": "client_id",
        f"{STORAGE_AZURE.prefix}clientsecret": "client_secret",
        f"{STORAGE_AZURE.prefix}bearertoken": "token",
        f"{STORAGE_AZURE.prefix}endpoint": "endpoint",
    },
)

GCS = Family(
    prefixes=("google_",),
    settings=_names(
        """application_credentials base_url bearer_token service_account service_account_key
        skip_signature"""
    ),
    aliases={"service_account_path": "service_account", "endpoint": "base_url"},
    credentials=_names(
        "application_credentials bearer_token service_account service_account_key skip_signature"
    ),
    spark_options={
        f"{STORAGE_GCP.prefix}serviceaccountkey": "service_account_key",
        f"{STORAGE_GCP.prefix}credentialsfile": "application_credentials",
        f"{STORAGE_GCP.prefix}endpoint": "base_url",
    },
)

FAMILIES: Mapping[Scheme, Family] = {Scheme.S3: S3, Scheme.AZURE: AZURE, Scheme.GCS: GCS}


# --- merging the sources ------------------------------------------------------------------------------

_HADOOP_PREFIX = "spark.hadoop."
# The secret part of a shared access signature, which may appear without the rest of it.
_SIGNATURE = re.compile(r"(?<=sig=)[^&;]+")
# The client reads these from the environment unless they are set explicitly.
_SWITCHES = frozenset({"skip_signature", "use_azure_cli"})
_SERVICE_ACCOUNTS = frozenset({"service_account", "service_account_key"})
_TRUE = frozenset({"true", "1", "yes", "on", "t", "y"})


class ClientSettings(msgspec.Struct, frozen=True):
    """The settings of a client, under object_store's short names."""

    config: Settings
    client: Settings
    overridden: frozenset[str]
    """Credentials in the environment that a stronger source replaces; the client must not use them."""
    lists_by_folder: bool = False
    """Whether the store lists folder by folder ("a/x" before "a-b") where S3 sorts whole keys."""

    def secrets(self) -> list[Secret]:
        """Return the values that must not appear in any text."""
        hidden = [value for name, value in self._all() if name not in PUBLIC_SETTINGS]
        return hidden + [Secret(part) for value in hidden for part in _SIGNATURE.findall(value.reveal())]

    def fingerprint_parts(self) -> list[str]:
        """Return texts that differ if and only if the settings differ."""
        return [part for name, value in self._all() for part in (name, value.reveal())]

    def _all(self) -> list[tuple[str, Secret]]:
        return sorted((self.config | self.client).items(), key=lambda item: item[0])


def client_settings(
    location: Location, storage_options: Mapping[str, Secret], options: Mapping[str, Secret]
) -> ClientSettings:
    """Return the settings of the client for a location. Local disk and memory have none.

    `options` may contain unrelated keys. Raises InvalidOptionError for an unknown name in `storage_options`, for a
    missing account, and for plain HTTP to another machine without allow_http.
    """
    family = FAMILIES.get(location.scheme)
    if family is None:
        return ClientSettings({}, {}, frozenset())
    named = _current_names(storage_options)
    dotted = _current_names(options) | {name: value for name, value in named.items() if "." in name}
    spark = _from_spark_options(family.spark_options, dotted)
    environment = _from_environment(family)
    given = _from_storage_options(family, {name: value for name, value in named.items() if "." not in name})
    hadoop = hadoop_settings(
        location.scheme,
        {name.removeprefix(_HADOOP_PREFIX): value for name, value in dotted.items()},
        Target(location.container, _account(location, (given, spark, environment))),
    )
    merged, overridden = _merge(family, (given, spark, hadoop), environment)
    merged |= {name: Secret("false") for name in overridden & _SWITCHES}
    if location.scheme is Scheme.AZURE:
        merged = _with_account(location, merged)
    if location.scheme is Scheme.GCS and (overridden - merged.keys()) & _SERVICE_ACCOUNTS:
        raise InvalidOptionError(
            f"{location}: the client prefers GOOGLE_SERVICE_ACCOUNT from the environment to the given credentials; "
            f"unset it"
        )
    if location.scheme is Scheme.S3 and _is_true(merged.pop("path_style_access", None)):
        merged["virtual_hosted_style_request"] = Secret("false")
    lists_by_folder = _lists_by_folder(location, merged.pop("list_order", None))
    client = {name: merged.pop(name) for name in CLIENT_SETTINGS & merged.keys()}
    return ClientSettings(merged, _with_plain_http(location, merged, client), overridden, lists_by_folder)


def _lists_by_folder(location: Location, order: Secret | None) -> bool:
    if order is None or order.reveal() in ("keys", "folders"):
        return order is not None and order.reveal() == "folders"
    raise InvalidOptionError(f"{location}: list_order must be 'keys' or 'folders'")


def _current_names(options: Mapping[str, Secret]) -> Settings:
    """Lower-case the names and replace the older prefix by the current one, which wins if both are set."""
    lower = {name.lower(): value for name, value in options.items()}
    older = {name: value for name, value in lower.items() if name.startswith(OLDER_PREFIX)}
    return {PREFIX + name.removeprefix(OLDER_PREFIX): value for name, value in older.items()} | lower


def _from_storage_options(family: Family, options: Mapping[str, Secret]) -> Settings:
    found: Settings = {}
    for name, value in sorted(options.items(), key=_by_name):
        short = _short_name(family, name)
        if short is None and not _belongs_to_another_family(family, name):
            raise InvalidOptionError(
                f"storage option {name!r} is unknown to this kind of store; known are "
                f"{', '.join(sorted(family.settings | CLIENT_SETTINGS))}"
            )
        if short is not None:
            found[short] = value
    return found


def _from_spark_options(table: Mapping[str, str], options: Mapping[str, Secret]) -> Settings:
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
    """Sort key: of two names for one setting, the longer and more specific one (`endpoint_url_s3`) comes last."""
    return item[0]


def _short_name(family: Family, name: str) -> str | None:
    candidates = [name, *(name.removeprefix(prefix) for prefix in family.prefixes if name.startswith(prefix))]
    for candidate in candidates:
        short = family.aliases.get(candidate, candidate)
        if short in family.settings or short in CLIENT_SETTINGS:
            return short
    return None


def _belongs_to_another_family(family: Family, name: str) -> bool:
    """One dictionary of options may serve tables in several clouds, so names of the other clouds are no error."""
    others = (other for other in FAMILIES.values() if other is not family)
    return any(name.startswith(other.prefixes) for other in others)


def _account(location: Location, sources: Iterable[Settings]) -> str | None:
    if location.account is not None:
        return location.account.name
    return next((source["account_name"].reveal() for source in sources if "account_name" in source), None)


def _merge(
    family: Family, sources: Iterable[Settings], environment: Settings
) -> tuple[Settings, frozenset[str]]:
    """Take each setting from its strongest source, but all credentials from the strongest source that has any."""
    merged: Settings = {}
    credentials_found = False
    overridden: frozenset[str] = frozenset()
    for source in (*sources, environment):
        credentials = family.credentials & source.keys()
        if credentials_found and source is environment:
            overridden = credentials
        for name, value in source.items():
            if not (credentials_found and name in credentials):
                merged.setdefault(name, value)
        credentials_found = credentials_found or bool(credentials)
    return merged, overridden


def _with_plain_http(location: Location, config: Settings, client: Settings) -> Settings:
    endpoint = config.get("endpoint") or config.get("base_url")
    if endpoint is None or not endpoint.reveal().lower().startswith("http://"):
        return client
    if not _is_true(client.get("allow_http")) and not _is_loopback(
        urlsplit(endpoint.reveal()).hostname or ""
    ):
        raise InvalidOptionError(
            f"{location}: the endpoint is plain HTTP on another machine, which exposes credentials and data on the "
            f"network; use https:// or set the storage option allow_http=true"
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


# --- Azure: the account comes from the URL, a setting or a connection string ----------------------------

_PUBLIC_CLOUD = "core.windows.net"
_FABRIC = "fabric.microsoft.com"
_EMULATOR_ACCOUNT = "devstoreaccount1"

# The first of these that is set decides how to authenticate. The client gets it explicitly, so it does not choose
# another one from the environment.
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


def _with_account(location: Location, settings: Settings) -> Settings:
    """Complete settings with the account, its endpoint and the credential type. Raises InvalidOptionError."""
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
