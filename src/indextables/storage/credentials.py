"""The names under which people give credentials and connection settings, for each family of stores.

Tables only: `settings` reads the sources in their order and decides. Everything is looked up in lower case.
"""

from collections.abc import Mapping

import msgspec

from indextables.storage.urls import Scheme


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CLIENT_SETTINGS = _names(
    """allow_http allow_invalid_certificates connect_timeout http1_only http2_only pool_idle_timeout
    pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url read_timeout root_certificate timeout
    user_agent"""
)
"""Settings of the HTTP client, the same for every family."""

PUBLIC_SETTINGS = (CLIENT_SETTINGS - {"proxy_url"}) | _names(
    """account_name authority_host base_url checksum_algorithm conditional_put copy_if_not_exists
    credential_type default_region disable_bulk_delete disable_tagging endpoint imdsv1_fallback
    metadata_endpoint path_style_access region request_payer s3_express server_side_encryption skip_signature
    sse_bucket_key_enabled endpoint_url_sts unsigned_payload use_azure_cli use_emulator use_fabric_endpoint
    virtual_hosted_style_request"""
)
"""The settings whose values may stand in a message. Every other value is treated as a secret."""


class Family(msgspec.Struct, frozen=True):
    """What one kind of store can be told, and under which names."""

    prefixes: tuple[str, ...]
    """What may stand before a short name, in storage_options and in the environment; longest first."""
    settings: frozenset[str]
    """Short names, as object_store has them."""
    aliases: Mapping[str, str]
    """Other short names."""
    credentials: frozenset[str]
    """What proves who asks. All of these come from one source: a mixture of two would be nobody's."""
    spark_options: Mapping[str, str]
    """Options of IndexTables for Spark, strongest first, and the short names for them."""


S3 = Family(
    prefixes=("aws_",),
    settings=_names(
        """access_key_id checksum_algorithm conditional_put container_authorization_token_file
        container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region
        disable_bulk_delete disable_tagging endpoint imdsv1_fallback metadata_endpoint path_style_access
        region request_payer role_arn role_session_name s3_express secret_access_key server_side_encryption
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
        "spark.indextables.aws.accesskey": "access_key_id",
        "spark.indextables.aws.secretkey": "secret_access_key",
        "spark.indextables.aws.sessiontoken": "session_token",
        "spark.indextables.aws.region": "region",
        "spark.indextables.s3.endpoint": "endpoint",
        "spark.indextables.s3.serviceurl": "endpoint",
        "spark.indextables.aws.endpoint": "endpoint",
        "spark.indextables.s3.pathstyleaccess": "path_style_access",
        "spark.indextables.aws.pathstyleaccess": "path_style_access",
        "spark.indextables.aws.forcepathstyle": "path_style_access",
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
    # The tenant and the client's id prove nothing: they may come from elsewhere than the client's secret.
    credentials=_names(
        """account_key client_secret connection_string credential_type federated_token_file sas_token
        skip_signature token use_azure_cli"""
    ),
    spark_options={
        "spark.indextables.azure.accountname": "account_name",
        "spark.indextables.azure.accountkey": "account_key",
        "spark.indextables.azure.connectionstring": "connection_string",
        "spark.indextables.azure.tenantid": "tenant_id",
        "spark.indextables.azure.clientid": "client_id",
        "spark.indextables.azure.clientsecret": "client_secret",
        "spark.indextables.azure.bearertoken": "token",
        "spark.indextables.azure.endpoint": "endpoint",
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
        "spark.indextables.gcp.serviceaccountkey": "service_account_key",
        "spark.indextables.gcp.credentialsfile": "application_credentials",
        "spark.indextables.gcp.endpoint": "base_url",
    },
)

FAMILIES: Mapping[Scheme, Family] = {Scheme.S3: S3, Scheme.AZURE: AZURE, Scheme.GCS: GCS}
