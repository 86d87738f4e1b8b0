"""Every setting, defined once: its documentation and its checks follow from here.

Other modules read a value as `settings[CHECKPOINT_INTERVAL]`. The keys are written without their common
prefix `spark.indextables.`.
"""

from typing import Any

from indextables.config.kinds import WholeDuration
from indextables.config.setting import PREFIX, Alias, Definitions, Section, Setting, SettingFamily

MAX_INT = 2**31 - 1
_MAX_THREADS = 1024


def _hours_of(milliseconds: int) -> float:
    return milliseconds / 3_600_000


# --- transaction log ----------------------------------------------------------------------------------

_transaction = Definitions(Section.TRANSACTION)

TRANSACTION_COMPRESSION_ENABLED = _transaction.boolean(
    "transaction.compression.enabled", True, "Write version files compressed with gzip."
)
TRANSACTION_RETRY_MAX_ATTEMPTS = _transaction.integer(
    "transaction.retry.maxAttempts",
    10,
    "How often a commit is tried when other writers are faster.",
    minimum=1,
)
TRANSACTION_RETRY_BASE_DELAY_MS = _transaction.milliseconds(
    "transaction.retry.baseDelayMs", 100, "Wait before the second attempt of a commit; it doubles from there."
)
TRANSACTION_RETRY_MAX_DELAY_MS = _transaction.milliseconds(
    "transaction.retry.maxDelayMs", 5000, "Longest wait between two attempts of a commit."
)

_cache = Definitions(Section.CACHE)

TRANSACTION_CACHE_ENABLED = _cache.boolean(
    "transaction.cache.enabled", True, "Keep versions, file lists, metadata and checkpoints in memory."
)
TRANSACTION_CACHE_EXPIRATION_SECONDS = _cache.seconds(
    "transaction.cache.expirationSeconds", 300, "Age at which anything in the cache is read anew.", minimum=0
)

# --- checkpoints --------------------------------------------------------------------------------------

_checkpoint = Definitions(Section.CHECKPOINT)

CHECKPOINT_ENABLED = _checkpoint.boolean(
    "checkpoint.enabled", True, "Write checkpoints automatically after commits."
)
CHECKPOINT_INTERVAL = _checkpoint.integer(
    "checkpoint.interval", 10, "Versions from one automatic checkpoint to the next.", minimum=1
)
CHECKPOINT_ASYNC = _checkpoint.boolean(
    "checkpoint.async.enabled",
    False,
    "Write automatic checkpoints in the background (only in IndexTables for Python).",
)
CHECKPOINT_RETENTION = _checkpoint.integer(
    "checkpoint.retention", 30, "Versions before a checkpoint whose version files are kept.", minimum=0
)
CHECKPOINT_COMPRESSION = _checkpoint.choice(
    "checkpoint.compression",
    ("snappy", "gzip", "zstd", "lz4", "none"),
    "snappy",
    "Codec of checkpoints in the Parquet format.",
)
CHECKPOINT_MAX_FILE_SIZE = _checkpoint.size(
    "checkpoint.maxFileSize",
    "128M",
    "Size above which a JSON checkpoint is written in several parts.",
    minimum="1K",
)
CHECKPOINT_PARALLELISM = _checkpoint.integer(
    "checkpoint.parallelism",
    8,
    "Threads that read version files and parts of checkpoints.",
    minimum=1,
    maximum=_MAX_THREADS,
)
CHECKPOINT_READ_TIMEOUT_SECONDS = _checkpoint.seconds(
    "checkpoint.read.timeoutSeconds",
    60,
    "Limit for reading a checkpoint; then the reader falls back to an older one or to replay, or fails.",
    minimum=1,
)

# --- state --------------------------------------------------------------------------------------------

_state = Definitions(Section.STATE)

STATE_FORMAT = _state.choice(
    "state.format",
    ("avro", "json", "parquet"),
    "avro",
    "Format of new checkpoints; json and parquet are the formats of older releases.",
    (Alias(PREFIX + "checkpoint.format"),),
)
STATE_COMPRESSION = _state.choice(
    "state.compression", ("zstd", "snappy", "deflate", "none"), "zstd", "Codec of Avro manifests."
)
STATE_COMPRESSION_LEVEL = _state.integer(
    "state.compressionLevel",
    3,
    "Effort of zstd; deflate stops at 9, and the other codecs have no level.",
    minimum=1,
    maximum=22,
)
STATE_ENTRIES_PER_MANIFEST = _state.integer(
    "state.entriesPerManifest", 50_000, "Most entries that one Avro manifest holds.", minimum=1
)
STATE_READ_PARALLELISM = _state.integer(
    "state.read.parallelism", 8, "Manifests that are read at the same time.", minimum=1, maximum=_MAX_THREADS
)
STATE_MANIFESTS_PER_DRIVER = _state.integer(
    "state.manifestsPerDriver",
    64,
    "Manifests above which statements in a session of Spark let its executors read or write them; 0: never.",
    minimum=0,
)
STATE_SCHEMA_RENORMALIZE_THRESHOLD = _state.integer(
    "state.schema.renormalizeThreshold",
    5,
    "Number of different schemas above which a checkpoint computes their hashes anew.",
    minimum=0,
)
STATE_RETRY_MAX_ATTEMPTS = _state.integer(
    "state.retry.maxAttempts",
    10,
    "Attempts to write a checkpoint when the store fails or another writer removes its base.",
    minimum=1,
)
STATE_RETRY_BASE_DELAY_MS = _state.milliseconds(
    "state.retry.baseDelayMs",
    100,
    "Limit of the random pause before the second attempt; it doubles with every attempt.",
)
STATE_RETRY_MAX_DELAY_MS = _state.milliseconds(
    "state.retry.maxDelayMs", 5000, "Upper limit of the pause between two attempts to write a checkpoint."
)

_compaction = Definitions(Section.COMPACTION)

STATE_COMPACTION_TOMBSTONE_THRESHOLD = _compaction.ratio(
    "state.compaction.tombstoneThreshold",
    0.10,
    "Compact when there are more tombstones than this share of the files.",
)
STATE_COMPACTION_MAX_MANIFESTS = _compaction.integer(
    "state.compaction.maxManifests", 20, "Compact when a state refers to more manifests than this.", minimum=1
)
STATE_COMPACTION_LARGE_REMOVE_THRESHOLD = _compaction.integer(
    "state.compaction.largeRemoveThreshold",
    MAX_INT,
    "Compact when one write removes more files than this; by default never.",
    minimum=0,
    names=(("MAX_INT", MAX_INT),),
)
STATE_COMPACTION_AFTER_MERGE = _compaction.boolean(
    "state.compaction.afterMerge", True, "Compact after every merge of splits."
)

_state_retention = Definitions(Section.STATE_RETENTION)

STATE_RETENTION_VERSIONS = _state_retention.integer(
    "state.retention.versions", 2, "Older states that are kept whatever their age.", minimum=0
)
STATE_RETENTION_HOURS = _state_retention.hours(
    "state.retention.hours",
    168,
    "Hours for which older states and checkpoints are kept.",
    (Alias(PREFIX + "checkpointRetention.duration", WholeDuration("milliseconds"), _hours_of, "7200000"),),
)
STATE_GC_MIN_MANIFEST_AGE_HOURS = _state_retention.hours(
    "state.gc.minManifestAgeHours", 1, "Manifests younger than this are never deleted: a write may need them."
)

# --- statistics ---------------------------------------------------------------------------------------

_statistics = Definitions(Section.STATISTICS)

STATS_TRUNCATION_ENABLED = _statistics.boolean(
    "stats.truncation.enabled", True, "Shorten long minima and maxima of text columns."
)
STATS_TRUNCATION_MAX_LENGTH = _statistics.integer(
    "stats.truncation.maxLength", 32, "Characters that a shortened minimum or maximum keeps.", minimum=1
)
DATA_SKIPPING_NUM_INDEXED_COLS = _statistics.integer(
    "dataSkippingNumIndexedCols",
    32,
    "First columns that get statistics; -1 is all of them, 0 is none.",
    minimum=-1,
)
DATA_SKIPPING_STATS_COLUMNS = _statistics.names(
    "dataSkippingStatsColumns", "Columns that get statistics, instead of the first ones."
)

# --- cleanup and purge --------------------------------------------------------------------------------

_cleanup = Definitions(Section.CLEANUP)

CLEANUP_ENABLED = _cleanup.boolean(
    "cleanup.enabled", True, "Delete version files past their retention once a checkpoint covers them."
)
CLEANUP_FAILURE_POLICY = _cleanup.choice(
    "cleanup.failurePolicy",
    ("continue", "fail"),
    "continue",
    "If cleanup after a commit fails: continue logs a warning, fail raises an error; the commit stands.",
)
CLEANUP_DRY_RUN = _cleanup.boolean(
    "cleanup.dryRun", False, "Log what the cleanup would delete, and delete nothing."
)

_purge = Definitions(Section.PURGE)

PURGE_TX_LOG_RETENTION_HOURS = _purge.hours(
    "purge.txLogRetentionHours",
    720,
    "Hours for which version files are kept.",
    (Alias(PREFIX + "logRetention.duration", WholeDuration("milliseconds"), _hours_of, "2592000000"),),
)
PURGE_DEFAULT_RETENTION_HOURS = _purge.hours(
    "purge.defaultRetentionHours",
    168,
    "Hours for which unreferenced splits are kept if a purge names no other time.",
)
PURGE_MIN_RETENTION_HOURS = _purge.hours(
    "purge.minRetentionHours", 24, "Shortest retention that a purge accepts for splits."
)
PURGE_RETENTION_CHECK_ENABLED = _purge.boolean(
    "purge.retentionCheckEnabled",
    True,
    "Refuse a purge whose retention is shorter than purge.minRetentionHours.",
)
PURGE_PARALLELISM = _purge.integer(
    "purge.parallelism",
    0,
    "Deletes that run at the same time; auto, which is 0, leaves it to the machine.",
    minimum=0,
    maximum=_MAX_THREADS,
    names=(("auto", 0),),
)
PURGE_MAX_FILES_TO_DELETE = _purge.integer(
    "purge.maxFilesToDelete", 1_000_000, "Most files that one purge deletes.", minimum=1
)
PURGE_DELETE_RETRIES = _purge.integer(
    "purge.deleteRetries", 3, "How often a failed delete is tried again.", minimum=0, maximum=100
)

_purge_on_write = Definitions(Section.PURGE_ON_WRITE)

PURGE_ON_WRITE_ENABLED = _purge_on_write.boolean("purgeOnWrite.enabled", False, "Purge as a part of writing.")
PURGE_ON_WRITE_TRIGGER_AFTER_MERGE = _purge_on_write.boolean(
    "purgeOnWrite.triggerAfterMerge", True, "Purge after every merge of splits."
)
PURGE_ON_WRITE_TRIGGER_AFTER_WRITES = _purge_on_write.integer(
    "purgeOnWrite.triggerAfterWrites", 0, "Purge after so many writes; 0 is never.", minimum=0
)
PURGE_ON_WRITE_SPLIT_RETENTION_HOURS = _purge_on_write.hours(
    "purgeOnWrite.splitRetentionHours", 168, "Hours for which purge-on-write keeps unreferenced splits."
)
PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS = _purge_on_write.hours(
    "purgeOnWrite.txLogRetentionHours", 720, "Hours for which purge-on-write keeps version files."
)

# --- merge --------------------------------------------------------------------------------------------

_merge = Definitions(Section.MERGE)

MERGE_TARGET_SIZE = _merge.size(
    "merge.targetSize", "100M", "Size that merged splits should reach if a merge names none.", minimum="1"
)
MERGE_MAX_SOURCE_SPLITS = _merge.integer(
    "merge.maxSourceSplitsPerMerge",
    1000,
    "Most splits that become one if a merge names no number.",
    minimum=2,
)
MERGE_PARALLELISM = _merge.integer(
    "merge.parallelism",
    0,
    "Splits that a merge builds at the same time; auto, which is 0, is one for each processor.",
    minimum=0,
    maximum=_MAX_THREADS,
    names=(("auto", 0),),
)

_merge_on_write = Definitions(Section.MERGE_ON_WRITE)

MERGE_ON_WRITE_ENABLED = _merge_on_write.boolean(
    "mergeOnWrite.enabled", False, "Merge small splits after a write when there are enough of them."
)
MERGE_ON_WRITE_ASYNC_ENABLED = _merge_on_write.boolean(
    "mergeOnWrite.async.enabled", True, "Merge in the background, so that the write returns at once."
)
MERGE_ON_WRITE_TARGET_SIZE = _merge_on_write.size(
    "mergeOnWrite.targetSize", "4G", "Size that merged splits should reach.", minimum="1M"
)
MERGE_ON_WRITE_BATCH_CPU_FRACTION = _merge_on_write.ratio(
    "mergeOnWrite.batchCpuFraction", 0.167, "Share of the processors that one batch of merges may use."
)
MERGE_ON_WRITE_MAX_CONCURRENT_BATCHES = _merge_on_write.integer(
    "mergeOnWrite.maxConcurrentBatches", 3, "Batches of merges that run at the same time.", minimum=1
)
MERGE_ON_WRITE_MIN_BATCHES_TO_TRIGGER = _merge_on_write.integer(
    "mergeOnWrite.minBatchesToTrigger",
    1,
    "Full batches that must be waiting before a merge starts.",
    minimum=1,
)
MERGE_ON_WRITE_SHUTDOWN_TIMEOUT_MS = _merge_on_write.milliseconds(
    "mergeOnWrite.shutdownTimeoutMs", 300_000, "How long a process that ends waits for its merges."
)

_skipped_files = Definitions(Section.SKIPPED_FILES)

SKIPPED_FILES_TRACKING_ENABLED = _skipped_files.boolean(
    "skippedFiles.trackingEnabled",
    True,
    "Record the splits that a merge could not read, and leave them alone.",
)
SKIPPED_FILES_COOLDOWN_HOURS = _skipped_files.hours(
    "skippedFiles.cooldownDuration", 24, "Hours before a skipped split is tried again."
)

# --- protocol -----------------------------------------------------------------------------------------

_protocol = Definitions(Section.PROTOCOL)

PROTOCOL_AUTO_UPGRADE = _protocol.boolean(
    "protocol.autoUpgrade",
    True,
    "Let Avro checkpoints raise older tables to protocol 4; if false, those get JSON checkpoints.",
)
PROTOCOL_CHECK_ENABLED = _protocol.boolean(
    "protocol.checkEnabled",
    True,
    "Check the table's protocol before every read and write.",
    without_effect="the check is always on",
)
PROTOCOL_ENFORCE_READER_VERSION = _protocol.boolean(
    "protocol.enforceReaderVersion",
    True,
    "Refuse to read a table that requires a newer reader.",
    without_effect="the check is always on",
)
PROTOCOL_ENFORCE_WRITER_VERSION = _protocol.boolean(
    "protocol.enforceWriterVersion",
    True,
    "Refuse to write to a table that requires a newer writer.",
    without_effect="the check is always on",
)

# --- indexing -----------------------------------------------------------------------------------------

_indexing = Definitions(Section.INDEXING)

INDEXING_FAST_FIELDS = _indexing.names(
    "indexing.fastfields", "Columns stored by column for sorting and aggregation."
)
INDEXING_STORE_ONLY_FIELDS = _indexing.names(
    "indexing.storeonlyfields", "Columns that are stored but not searchable."
)
INDEXING_INDEX_ONLY_FIELDS = _indexing.names(
    "indexing.indexonlyfields",
    "Columns that other readers need not store; here every column can be read back.",
)
INDEXING_JSON_MODE = _indexing.choice(
    "indexing.json.mode", ("full", "minimal"), "full", "How much of structs, arrays and maps is indexed."
)
INDEXING_TEXT_INDEX_RECORD_OPTION = _indexing.choice(
    "indexing.text.indexRecordOption",
    ("basic", "freq", "position"),
    "position",
    "What the index keeps for a term of a text column: documents, counts, or positions for phrases.",
)
INDEXING_TEXT_MAX_TOKEN_LENGTH = _indexing.integer(
    "indexing.text.maxTokenLength",
    255,
    "Longest token in bytes; longer ones are not indexed.",
    minimum=1,
    maximum=65_530,
    names=(("default", 255), ("legacy", 40), ("tantivy_max", 65_530), ("min", 1)),
    aliases=(Alias(PREFIX + "indexing.tokenLength"),),
)

INDEXING_TYPEMAP = _indexing.family(
    "indexing.typemap.",
    "field",
    "How a column is indexed (string, text, json, ip), or a type and its columns.",
)
INDEXING_TOKENIZER = _indexing.family(
    "indexing.tokenizer.", "field", "The tokenizer of a text column, or a tokenizer and its columns."
)
INDEXING_INDEX_RECORD_OPTION = _indexing.family(
    "indexing.indexrecordoption.",
    "field",
    "What the index keeps for the terms of one column: basic, freq, position.",
)
INDEXING_TOKEN_LENGTH = _indexing.family(
    "indexing.tokenLength.", "field", "The longest token of a column, or a length and its columns."
)

# --- splits -------------------------------------------------------------------------------------------

_splits = Definitions(Section.WRITING)

WRITE_TARGET_SPLIT_SIZE = _splits.size(
    "write.targetSplitSize", "1G", "Size at which a split is complete and the next one begins.", minimum="1K"
)
WRITE_OPTIMIZE_ENABLED = _splits.boolean(
    "write.optimizeWrite.enabled",
    False,
    "Shuffle rows by partition before an enabled Spark session writes them: fewer and larger splits.",
)
INDEX_WRITER_HEAP_SIZE = _splits.size(
    "indexWriter.heapSize", "256M", "Memory for building the index of a split.", minimum="32M"
)
READ_PARALLELISM = _splits.integer(
    "read.parallelism", 4, "Splits that are scanned or searched at once.", minimum=1, maximum=_MAX_THREADS
)
READ_TASK_SIZE = _splits.size(
    "read.taskSize", "128M", "Size of the splits that one task of Spark reads.", minimum="1K"
)
READ_MIN_TASKS = _splits.integer(
    "read.minTasks",
    0,
    "Tasks that Spark reads a table with, if it has as many splits; 0: one for each core of the driver.",
    minimum=0,
)
READ_MAX_SPLITS_PER_TASK = _splits.integer(
    "read.maxSplitsPerTask", 1000, "Most splits that one task of Spark reads.", minimum=1
)
DISK_CACHE_PATH = _splits.text(
    "cache.disk.path", "", "Folder of the local cache of indexes; empty: the user's cache folder."
)
DISK_CACHE_MAX_SIZE = _splits.size(
    "cache.disk.maxSize",
    "10G",
    "Size of the local cache of indexes, above which the oldest go.",
    minimum="1M",
)

# --- storage ------------------------------------------------------------------------------------------

_storage = Definitions(Section.STORAGE)

STORAGE_AWS = _storage.credentials(
    "aws.",
    ("accessKey", "secretKey", "sessionToken", "region", "endpoint"),
    "Credentials and region for S3.",
)
STORAGE_S3 = _storage.credentials("s3.", ("endpoint", "pathStyleAccess"), "Endpoint of S3.")
STORAGE_AZURE = _storage.credentials(
    "azure.",
    (
        "accountName",
        "accountKey",
        "connectionString",
        "bearerToken",
        "tenantId",
        "clientId",
        "clientSecret",
        "endpoint",
    ),
    "Account and credentials for Azure Blob Storage.",
)
STORAGE_GCP = _storage.credentials(
    "gcp.",
    ("serviceAccountKey", "credentialsFile", "endpoint"),
    "Project and credentials for Google Cloud Storage.",
)

SETTINGS: tuple[Setting[Any], ...] = tuple(
    definition for definition in list(globals().values()) if isinstance(definition, Setting)
)
FAMILIES: tuple[SettingFamily, ...] = tuple(
    definition for definition in list(globals().values()) if isinstance(definition, SettingFamily)
)
