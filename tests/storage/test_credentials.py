"""Settings of a store's client: under every name, from every source, in the right order."""

import pytest
from obstore.exceptions import UnknownConfigurationKeyError

from indextables.config.registry import STORAGE_AWS, STORAGE_AZURE, STORAGE_GCP, STORAGE_S3
from indextables.errors import InvalidOptionError, StorageError
from indextables.storage import Secret, open_store, parse_root
from indextables.storage.credentials import CLIENT_SETTINGS, FAMILIES, ClientSettings, client_settings
from indextables.storage.remote import RemoteStore
from indextables.storage.urls import Scheme
from support.clock import VirtualClock

ROOTS = {
    Scheme.S3: "s3://bucket/table",
    Scheme.AZURE: "abfss://container@account.dfs.core.windows.net/table",
    Scheme.GCS: "gs://bucket/table",
}


def resolved(root: str, storage_options=None, options=None) -> ClientSettings:
    def wrapped(given: dict[str, str] | None) -> dict[str, Secret]:
        return {name: Secret(value) for name, value in (given or {}).items()}

    return client_settings(parse_root(root), wrapped(storage_options), wrapped(options))


def config(root: str, storage_options=None, options=None) -> dict[str, str]:
    found = resolved(root, storage_options, options)
    return {name: value.reveal() for name, value in (found.config | found.client).items()}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aws_access_key_id", "access_key_id"),
        ("AWS_ACCESS_KEY_ID", "access_key_id"),
        ("access_key_id", "access_key_id"),
        ("aws_secret_access_key", "secret_access_key"),
        ("aws_session_token", "session_token"),
        ("aws_token", "session_token"),
        ("token", "session_token"),
        ("region", "region"),
        ("aws_default_region", "default_region"),
        ("aws_endpoint_url", "endpoint"),
        ("endpoint", "endpoint"),
        ("aws_allow_http", "allow_http"),
        ("timeout", "timeout"),
    ],
)
def test_storage_options_for_s3_by_long_and_short_names(name, short):
    assert config(ROOTS[Scheme.S3], {name: "https://value"})[short] == "https://value"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("azure_storage_account_key", "account_key"),
        ("azure_storage_access_key", "account_key"),
        ("account_key", "account_key"),
        ("access_key", "account_key"),
        ("azure_client_id", "client_id"),
        ("azure_storage_authority_id", "tenant_id"),
        ("sas_key", "sas_token"),
        ("azure_storage_sas_token", "sas_token"),
        ("bearer_token", "token"),
        ("azure_storage_token", "token"),
    ],
)
def test_storage_options_for_azure_by_long_and_short_names(name, short):
    assert config(ROOTS[Scheme.AZURE], {name: "value"})[short] == "value"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("google_service_account", "service_account"),
        ("service_account_path", "service_account"),
        ("google_service_account_key", "service_account_key"),
        ("google_application_credentials", "application_credentials"),
        ("bearer_token", "bearer_token"),
    ],
)
def test_storage_options_for_google_by_long_and_short_names(name, short):
    assert config(ROOTS[Scheme.GCS], {name: "value"})[short] == "value"


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
@pytest.mark.parametrize(
    ("root", "option", "short"),
    [
        (ROOTS[Scheme.S3], "spark.indextables.aws.accessKey", "access_key_id"),
        (ROOTS[Scheme.S3], "spark.indextables.aws.secretKey", "secret_access_key"),
        (ROOTS[Scheme.S3], "spark.indextables.aws.sessionToken", "session_token"),
        (ROOTS[Scheme.S3], "spark.indextables.aws.region", "region"),
        (ROOTS[Scheme.S3], "spark.indextables.aws.endpoint", "endpoint"),
        (ROOTS[Scheme.S3], "spark.indextables.s3.endpoint", "endpoint"),
        (ROOTS[Scheme.S3], "fs.s3a.access.key", "access_key_id"),
        (ROOTS[Scheme.S3], "spark.hadoop.fs.s3a.secret.key", "secret_access_key"),
        (ROOTS[Scheme.S3], "fs.s3a.session.token", "session_token"),
        (ROOTS[Scheme.S3], "spark.hadoop.fs.s3a.endpoint.region", "region"),
        (ROOTS[Scheme.AZURE], "spark.indextables.azure.accountKey", "account_key"),
        (ROOTS[Scheme.AZURE], "spark.indextables.azure.tenantId", "tenant_id"),
        (ROOTS[Scheme.AZURE], "spark.indextables.azure.clientId", "client_id"),
        (ROOTS[Scheme.AZURE], "spark.indextables.azure.clientSecret", "client_secret"),
        (ROOTS[Scheme.AZURE], "spark.indextables.azure.bearerToken", "token"),
        (ROOTS[Scheme.AZURE], "spark.indextables.azure.endpoint", "endpoint"),
        (ROOTS[Scheme.AZURE], "fs.azure.account.key.account.dfs.core.windows.net", "account_key"),
        (
            ROOTS[Scheme.AZURE],
            "spark.hadoop.fs.azure.account.key.account.blob.core.windows.net",
            "account_key",
        ),
        (ROOTS[Scheme.AZURE], "fs.azure.sas.fixed.token.account.dfs.core.windows.net", "sas_token"),
        (ROOTS[Scheme.AZURE], "fs.azure.account.oauth2.client.id.account.dfs.core.windows.net", "client_id"),
        (ROOTS[Scheme.AZURE], "fs.azure.account.oauth2.client.secret", "client_secret"),
        (ROOTS[Scheme.GCS], "spark.indextables.gcp.credentialsFile", "application_credentials"),
        (ROOTS[Scheme.GCS], "spark.indextables.gcp.serviceAccountKey", "service_account_key"),
        (ROOTS[Scheme.GCS], "spark.hadoop.google.cloud.auth.service.account.json.keyfile", "service_account"),
    ],
)
def test_spark_and_hadoop_options_in_any_letter_case(root, option, short, change):
    options = {change(option): "https://value", "spark.sql.shuffle.partitions": "2"}
    assert config(root, None, options)[short] == "https://value"
    assert config(root, {change(option): "https://value"})[short] == "https://value"


def test_sources_rank_storage_options_then_spark_then_hadoop_then_environment(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "environment")
    options = {}
    assert config(ROOTS[Scheme.S3], {}, options)["region"] == "environment"
    options["fs.s3a.endpoint.region"] = "hadoop"
    assert config(ROOTS[Scheme.S3], {}, options)["region"] == "hadoop"
    options["spark.indextables.aws.region"] = "spark"
    assert config(ROOTS[Scheme.S3], {}, options)["region"] == "spark"
    assert config(ROOTS[Scheme.S3], {"region": "explicit"}, options)["region"] == "explicit"


def test_credentials_of_two_sources_are_never_mixed(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "environment")
    options = {"spark.indextables.aws.accessKey": "spark", "spark.indextables.aws.secretKey": "spark"}
    found = config(ROOTS[Scheme.S3], None, options)
    assert found == {"access_key_id": "spark", "secret_access_key": "spark"}
    assert resolved(ROOTS[Scheme.S3], None, options).overridden == {"access_key_id", "session_token"}


def test_azure_tenant_may_come_from_elsewhere_than_the_secret(monkeypatch):
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    monkeypatch.setenv("AZURE_CLIENT_ID", "environment")
    options = {"spark.indextables.azure.clientId": "id", "spark.indextables.azure.clientSecret": "secret"}
    found = config(ROOTS[Scheme.AZURE], None, options)
    assert (found["tenant_id"], found["client_id"], found["client_secret"]) == ("tenant", "id", "secret")
    assert found["credential_type"] == "client_secret"


def test_settings_of_one_bucket_go_before_those_of_all():
    options = {
        "fs.s3a.access.key": "all",
        "fs.s3a.bucket.bucket.access.key": "one",
        "fs.s3a.bucket.b2.access.key": "x",
    }
    assert config(ROOTS[Scheme.S3], None, options)["access_key_id"] == "one"


def test_key_of_another_azure_account_is_not_used():
    options = {"fs.azure.account.key.other.dfs.core.windows.net": "value"}
    assert "account_key" not in config(ROOTS[Scheme.AZURE], None, options)


def test_only_azure_account_in_the_options_is_the_account():
    options = {"fs.azure.account.key.acc.dfs.core.windows.net": "value"}
    found = config("az://container/table", None, options)
    assert (found["account_name"], found["account_key"]) == ("acc", "value")


def test_hadoop_token_endpoint_names_the_tenant():
    options = {
        "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/TENANT/oauth2/token"
    }
    assert config(ROOTS[Scheme.AZURE], None, options)["tenant_id"] == "TENANT"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5==;EndpointSuffix=core.windows.net",
            {"account_name": "acc", "account_key": "a2V5=="},
        ),
        (
            "AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn",
            {"account_name": "acc", "endpoint": "https://acc.blob.core.chinacloudapi.cn"},
        ),
        (
            "BlobEndpoint=https://acc.blob.core.windows.net;SharedAccessSignature=sv=1&sig=x%3D",
            {"account_name": "acc", "sas_token": "sv=1&sig=x%3D", "credential_type": "sas_token"},
        ),
        (
            "AccountName=dev;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/dev",
            {"endpoint": "http://127.0.0.1:10000/dev", "allow_http": "true"},
        ),
        ("UseDevelopmentStorage=true", {"account_name": "devstoreaccount1", "use_emulator": "true"}),
    ],
)
def test_azure_connection_string_is_taken_apart(text, expected):
    found = config("az://container/table", None, {"spark.indextables.azure.connectionString": text})
    assert expected.items() <= found.items()
    assert "connection_string" not in found


def test_azure_connection_string_without_account_is_refused_and_not_shown():
    with pytest.raises(InvalidOptionError, match="AccountName") as caught:
        config("az://container/table", {"connection_string": "AccountKey=CANARY"})
    assert "CANARY" not in str(caught.value)


def test_account_in_the_url_wins_over_options():
    assert config(ROOTS[Scheme.AZURE], {"account_name": "other"})["account_name"] == "account"


def test_other_azure_clouds_have_their_own_endpoint():
    found = config("abfss://c@acc.dfs.core.usgovcloudapi.net/t", {"account_key": "a2V5"})
    assert found["endpoint"] == "https://acc.blob.core.usgovcloudapi.net"
    assert config("abfss://c@onelake.dfs.fabric.microsoft.com/t")["use_fabric_endpoint"] == "true"


def test_path_style_access_is_what_the_client_does_by_itself():
    options = {"spark.indextables.s3.pathStyleAccess": "true"}
    assert config(ROOTS[Scheme.S3], None, options) == {"virtual_hosted_style_request": "false"}
    assert config(ROOTS[Scheme.S3], None, {"fs.s3a.path.style.access": "false"}) == {}


def test_unknown_storage_option_is_refused_by_name_only():
    with pytest.raises(InvalidOptionError, match="'acces_key_id'") as caught:
        open_store(ROOTS[Scheme.S3], storage_options={"acces_key_id": "CANARY"})
    assert "CANARY" not in str(caught.value)


def test_one_dictionary_may_serve_several_clouds():
    options = {"aws_region": "here", "azure_storage_account_key": "a2V5", "google_service_account": "/file"}
    assert config(ROOTS[Scheme.S3], options) == {"region": "here"}
    assert config(ROOTS[Scheme.GCS], options) == {"service_account": "/file"}


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "localhost:9000", "[::1]:9000", "s3.localhost"])
def test_plain_http_on_this_machine_is_allowed(host):
    assert config(ROOTS[Scheme.S3], {"endpoint": f"http://{host}"})["allow_http"] == "true"


def test_plain_http_to_another_machine_must_be_asked_for():
    with pytest.raises(InvalidOptionError, match="allow_http=true"):
        config(ROOTS[Scheme.S3], {"endpoint": "http://minio:9000"})
    assert (
        config(ROOTS[Scheme.S3], {"endpoint": "http://minio:9000", "allow_http": "true"})["allow_http"]
        == "true"
    )
    hadoop = {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"}
    assert config(ROOTS[Scheme.S3], None, hadoop) == {"endpoint": "http://minio:9000", "allow_http": "true"}


def test_hadoop_endpoint_without_scheme_is_https():
    assert config(ROOTS[Scheme.S3], None, {"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}) == {
        "endpoint": "https://s3.eu-west-1.amazonaws.com"
    }


VALUES = {
    "list_order": "folders",
    "account_key": "a2V5",
    "allow_http": "true",
    "checksum_algorithm": "sha256",
    "conditional_put": "etag",
    "connect_timeout": "5s",
    "connection_string": "AccountName=account;AccountKey=a2V5",
    "copy_if_not_exists": "multipart",
    "credential_type": "access_key",
    "encryption_key": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "pool_idle_timeout": "5s",
    "pool_max_idle_per_host": "3",
    "proxy_url": "http://127.0.0.1:1",
    "read_timeout": "5s",
    "server_side_encryption": "AES256",
    "timeout": "5s",
}
BOOLEANS = frozenset(
    {
        "allow_invalid_certificates",
        "disable_bulk_delete",
        "disable_tagging",
        "http1_only",
        "http2_only",
        "imdsv1_fallback",
        "path_style_access",
        "request_payer",
        "s3_express",
        "skip_signature",
        "sse_bucket_key_enabled",
        "unsigned_payload",
        "use_azure_cli",
        "use_emulator",
        "use_fabric_endpoint",
        "virtual_hosted_style_request",
    }
)


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        (scheme, name)
        for scheme, family in FAMILIES.items()
        for name in sorted(family.settings | CLIENT_SETTINGS)
    ],
)
def test_every_setting_is_one_that_the_client_knows(scheme, name):
    value = VALUES.get(name) or ("true" if name in BOOLEANS else "https://127.0.0.1:1")
    settings = resolved(ROOTS[scheme], {name: value})
    store = RemoteStore(parse_root(ROOTS[scheme]), settings, VirtualClock())
    refusal = None
    try:
        store._client.get()
    except InvalidOptionError as error:
        refusal = error.__cause__
    # Some settings need others beside them; none may be unknown.
    assert not isinstance(refusal, UnknownConfigurationKeyError)
    assert "Invalid key" not in str(refusal)


@pytest.mark.parametrize(
    ("root", "options"),
    [
        (ROOTS[Scheme.S3], {"skip_signature": "CANARY"}),
        (ROOTS[Scheme.S3], {"timeout": "CANARY"}),
        (ROOTS[Scheme.AZURE], {"account_key": "not base64: CANARY"}),
        (ROOTS[Scheme.GCS], {"service_account_key": "not json: CANARY"}),
        (ROOTS[Scheme.GCS], {"service_account_key": '{"private_key": "CANARY"}'}),
    ],
)
def test_value_that_the_client_refuses_is_an_option_error(root, options):
    store = open_store(root, storage_options=options)
    with pytest.raises(InvalidOptionError, match="the storage options are invalid"):
        store.get("object")


def test_keys_that_were_given_are_not_completed_by_a_token_of_the_environment(
    monkeypatch, s3_server, s3_bucket
):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-user")
    store = open_store(f"s3://{s3_bucket}/table", storage_options=s3_server.storage_options)
    store.put("object", b"x")
    assert store.get("object") == b"x"


def test_endpoint_that_was_given_is_not_overruled_by_the_environment(monkeypatch, s3_server, s3_bucket):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    store = open_store(f"s3://{s3_bucket}/endpoint", storage_options=s3_server.storage_options)
    store.put("object", b"x")
    assert store.get("object") == b"x"


def test_more_specific_endpoint_of_the_environment_wins(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://specific")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://general")
    assert config(ROOTS[Scheme.S3])["endpoint"] == "https://specific"


def test_environment_cannot_switch_off_signatures_for_keys_that_were_given(monkeypatch):
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert config(ROOTS[Scheme.S3])["skip_signature"] == "true"
    assert (
        config(ROOTS[Scheme.S3], {"access_key_id": "a", "secret_access_key": "b"})["skip_signature"]
        == "false"
    )


def test_service_account_of_the_environment_that_would_win_is_refused(monkeypatch):
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/of/another/user.json")
    with pytest.raises(InvalidOptionError, match="unset it"):
        config(ROOTS[Scheme.GCS], {"application_credentials": "/mine.json"})
    assert config(ROOTS[Scheme.GCS], {"service_account": "/mine.json"})["service_account"] == "/mine.json"
    assert config(ROOTS[Scheme.GCS])["service_account"] == "/of/another/user.json"


def test_credentials_of_the_environment_are_used(monkeypatch, s3_server, s3_bucket):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", s3_server.region)
    store = open_store(f"s3://{s3_bucket}/environment")
    store.put("object", b"x")
    assert store.get("object") == b"x"


@pytest.mark.parametrize("spelling", ["options", "connection string", "emulator account in the url"])
def test_azurite_opens_by_spark_options(azurite_server, azure_container, spelling):
    if spelling == "options":
        root = f"azure://{azure_container}/spark"
        options = {
            "spark.indextables.azure.accountName": azurite_server.account_name,
            "spark.indextables.azure.accountKey": azurite_server.account_key,
            "spark.indextables.azure.endpoint": azurite_server.endpoint,
        }
    elif spelling == "connection string":
        root = f"az://{azure_container}/spark"
        text = (
            f"AccountName={azurite_server.account_name};AccountKey={azurite_server.account_key};"
            f"BlobEndpoint={azurite_server.endpoint};"
        )
        options = {"spark.indextables.azure.connectionString": text}
    else:
        root = f"abfss://{azure_container}@{azurite_server.account_name}.dfs.core.windows.net/spark"
        options = {
            f"fs.azure.account.key.{azurite_server.account_name}": azurite_server.account_key,
            "spark.indextables.azure.endpoint": azurite_server.endpoint,
        }
    store = open_store(root, options=options)
    store.put("object", b"x")
    assert store.get("object") == b"x"


def test_wrong_azure_key_is_access_denied(azurite_server, azure_container, monkeypatch):
    # A right key in the environment must not help.
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite_server.account_key)
    wrong = azurite_server.storage_options | {"azure_storage_account_key": "d3Jvbmc="}
    store = open_store(f"az://{azure_container}/table", storage_options=wrong)
    operations = (
        store.get,
        store.head,
        lambda key: store.put(key, b""),
        lambda key: list(store.list(f"{key}/")),
    )
    for operation in operations:
        with pytest.raises(StorageError) as caught:
            operation("object")
        assert type(caught.value).__name__ == "AccessDeniedError"


# --- the settings that the registry documents -----------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "families"),
    [
        (Scheme.S3, [STORAGE_AWS, STORAGE_S3]),
        (Scheme.AZURE, [STORAGE_AZURE]),
        (Scheme.GCS, [STORAGE_GCP]),
    ],
)
def test_every_documented_storage_key_is_read(scheme, families):
    documented = {(family.prefix + name).lower() for family in families for name in family.names}
    assert documented <= FAMILIES[scheme].spark_options.keys()


def test_older_prefix_of_a_storage_key_is_read_and_the_current_one_wins():
    options = {
        "spark.tantivy4spark.aws.region": "eu-west-1",
        "spark.tantivy4spark.aws.accessKey": "older",
        "spark.indextables.aws.accessKey": "current",
    }
    settings = client_settings(
        parse_root("s3://bucket/t"), {}, {name: Secret(value) for name, value in options.items()}
    )
    assert settings.config["region"].reveal() == "eu-west-1"
    assert settings.config["access_key_id"].reveal() == "current"


def test_the_order_of_listings_is_keys_or_folders():
    for order, expected in (("keys", False), ("folders", True)):
        assert resolved(ROOTS[Scheme.S3], {"list_order": order}).lists_by_folder is expected
    with pytest.raises(InvalidOptionError, match="must be 'keys' or 'folders'"):
        resolved(ROOTS[Scheme.S3], {"list_order": "random"})
