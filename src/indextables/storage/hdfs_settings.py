"""The settings of an HDFS client: Hadoop's own names, its configuration files, and Kerberos."""

import os
from collections.abc import Mapping
from typing import Final

import hdfs_native
import msgspec

from indextables.errors import InvalidOptionError
from indextables.storage.redaction import Secret

_PREFIX: Final = "hdfs_"
_HADOOP_PREFIX: Final = "spark.hadoop."
_HADOOP_NAMES: Final = ("dfs.", "fs.", "hadoop.", "ipc.")
_NAMES: Final = ("config_dir", "kerberos_principal", "kerberos_keytab", "kerberos_cache")

# By default the client fails only after minutes if no NameNode answers; our store repeats the whole call, too.
_DEFAULTS: Final = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
}


class HdfsSettings(msgspec.Struct, frozen=True):
    """What a client is opened with, besides core-site.xml and hdfs-site.xml."""

    config: Mapping[str, str]
    config_dir: str | None = None
    kerberos_principal: str | None = None
    kerberos_keytab: str | None = None
    kerberos_cache: str | None = None

    def open(self, authority: str) -> hdfs_native.Client:
        """Open a client of a NameNode or name service; of the default file system if `authority` is empty."""
        return hdfs_native.Client(
            f"hdfs://{authority}" if authority else None,
            dict(self.config),
            self.config_dir,
            kerberos_principal=self.kerberos_principal,
            kerberos_keytab=self.kerberos_keytab,
            kerberos_cache=self.kerberos_cache,
        )

    def fingerprint_parts(self) -> list[str]:
        """Return texts that differ if the settings, or the user of the environment, differ."""
        named = (self.config_dir, self.kerberos_principal, self.kerberos_keytab, self.kerberos_cache)
        user = os.environ.get("HADOOP_USER_NAME", "")
        return [
            *(text or "" for text in named),
            user,
            *(part for pair in sorted(self.config.items()) for part in pair),
        ]


def hdfs_settings(storage_options: Mapping[str, Secret], options: Mapping[str, Secret]) -> HdfsSettings:
    """Return the settings for HDFS; those in `storage_options` take precedence.

    `options` may contain unrelated keys. Raises InvalidOptionError for an unknown name in `storage_options`.
    """
    config = dict(_DEFAULTS)
    named: dict[str, str] = {}
    for source in (options, storage_options):
        for name, value in source.items():
            hadoop_name = name.removeprefix(_HADOOP_PREFIX)
            if hadoop_name.startswith(_HADOOP_NAMES):
                config[hadoop_name] = value.reveal()
    for name, value in storage_options.items():
        short = name.lower().removeprefix(_PREFIX)
        if short in _NAMES:
            named[short] = value.reveal()
        elif "." not in name and not name.lower().startswith(_OTHER_STORES):
            raise InvalidOptionError(
                f"storage option {name!r} is unknown to HDFS; known are {', '.join(_NAMES)}, and the names of Hadoop, "
                f"such as dfs.client.use.datanode.hostname"
            )
    return HdfsSettings(config, **named)


# One dictionary of options may serve tables in several stores.
_OTHER_STORES: Final = ("aws_", "azure_", "google_")
