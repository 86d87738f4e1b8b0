"""The registry of all settings. Validation and docs/configuration.md are derived from it.

Other modules read a value with `settings[CHECKPOINT_INTERVAL]`. Keys here omit the common prefix `spark.indextables.`.
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
    "Rounds of 20 tries to commit while concurrent writers take the next version.",
    minimum=1,
)
TRANSACTION_RETRY_BASE_DELAY_MS = _transaction.milliseconds(
    "transaction.retry.baseDelayMs",
    100,
    "Limit of the random pause after the first round; it doubles with every round.",
)
TRANSACTION_RETRY_MAX_DELAY_MS = _transaction.milliseconds(
    "transaction.retry.maxDelayMs", 5000, "Upper limit of the pause between two attempts to commit."
)

_cache = Definitions(Section.CACHE)

TRANSACTION_CACHE_ENABLED = _cache.boolean(
    "transaction.cache.enabled", True, "Keep versions, file lists, metadata and checkpoints in memory."
)
TRANSACTION_CACHE_EXPIRATION_SECONDS = _cache.seconds(
    "transaction.cache.expirationSeconds", 300, "Age at which a cached value expires.", minimum=0
)

# --- checkpoints --------------------------------------------------------------------------------------

_checkpoint = Definitions(Section.CHECKPOINT)

CHECKPOINT_ENABLED = _checkpoint.boolean(
    "checkpoint.enabled", True, "Write checkpoints automatically after commits."
)
CHECKPOINT_INTERVAL = _checkpoint.integer(
    "checkpoint.interval", 10, "Number of versions between two automatic checkpoints.", minimum=1
)
CHECKPOINT_ASYNC = _checkpoint.boolean(
    "checkpoint.async.enabled",
    False,
    "Write automatic checkpoints in a background thread (IndexTables for Python only).",
)
CHECKPOINT_RETENTION = _checkpoint.integer(
    "checkpoint.retention", 30, "Number of newest versions whose files cleanup always keeps.", minimum=0
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
    "Size above which a JSON or Parquet checkpoint is split into parts.",
    minimum="1K",
)
CHECKPOINT_PARALLELISM = _checkpoint.integer(
    "checkpoint.parallelism",
    8,
    "Threads that read version files and the parts of a checkpoint.",
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
    "Format of new checkpoints; json and parquet are legacy formats.",
    (Alias(PREFIX + "checkpoint.format"),),
)
STATE_COMPRESSION = _state.choice(
    "state.compression", ("zstd", "snappy", "deflate", "none"), "zstd", "Codec of Avro manifests."
)
STATE_COMPRESSION_LEVEL = _state.integer(
    "state.compressionLevel",
    3,
    "Compression level of zstd, or of deflate (at most 9); other codecs have none.",
    minimum=1,
    maximum=22,
)
STATE_ENTRIES_PER_MANIFEST = _state.integer(
    "state.entriesPerManifest", 50_000, "Maximum number of entries in an Avro manifest.", minimum=1
)
STATE_READ_PARALLELISM = _state.integer(
    "state.read.parallelism", 8, "Number of manifests to read in parallel.", minimum=1, maximum=_MAX_THREADS
)
STATE_MANIFESTS_PER_DRIVER = _state.integer(
    "state.manifestsPerDriver",
    64,
    "Number of manifests above which Spark executors read and write them; 0 disables this.",
    minimum=0,
)
STATE_SCHEMA_RENORMALIZE_THRESHOLD = _state.integer(
    "state.schema.renormalizeThreshold",
    5,
    "Number of schemas above which a checkpoint recomputes their hashes.",
    minimum=0,
)
STATE_RETRY_MAX_ATTEMPTS = _state.integer(
    "state.retry.maxAttempts",
    10,
    "Attempts to write a checkpoint if the store fails or its base is removed; 1 means no retry.",
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
    "Compact when the ratio of tombstones to files exceeds this.",
)
STATE_COMPACTION_MAX_MANIFESTS = _compaction.integer(
    "state.compaction.maxManifests",
    20,
    "Compact a state with more manifests than this, and with more than twice as many as needed.",
    minimum=1,
)
STATE_COMPACTION_LARGE_REMOVE_THRESHOLD = _compaction.integer(
    "state.compaction.largeRemoveThreshold",
    MAX_INT,
    "Compact when one write removes more files than this; never by default.",
    minimum=0,
    names=(("MAX_INT", MAX_INT),),
)
STATE_COMPACTION_AFTER_MERGE = _compaction.boolean(
    "state.compaction.afterMerge", True, "Compact after every merge of splits."
)

_state_retention = Definitions(Section.STATE_RETENTION)

STATE_RETENTION_VERSIONS = _state_retention.integer(
    "state.retention.versions", 2, "Number of older states to keep regardless of age.", minimum=0
)
STATE_RETENTION_HOURS = _state_retention.hours(
    "state.retention.hours",
    168,
    "Hours to keep older states and checkpoints.",
    (Alias(PREFIX + "checkpointRetention.duration", WholeDuration("milliseconds"), _hours_of, "7200000"),),
)
STATE_GC_MIN_MANIFEST_AGE_HOURS = _state_retention.hours(
    "state.gc.minManifestAgeHours",
    1,
    "Minimum age of unreferenced manifests to delete; below 1 counts as 1, to protect writers.",
)

# --- statistics ---------------------------------------------------------------------------------------

_statistics = Definitions(Section.STATISTICS)

STATS_TRUNCATION_ENABLED = _statistics.boolean(
    "stats.truncation.enabled", True, "Truncate long minimum and maximum values of text columns."
)
STATS_TRUNCATION_MAX_LENGTH = _statistics.integer(
    "stats.truncation.maxLength", 32, "Length in characters of a truncated minimum or maximum.", minimum=1
)
DATA_SKIPPING_NUM_INDEXED_COLS = _statistics.integer(
    "dataSkippingNumIndexedCols",
    32,
    "Number of leading columns with statistics; -1 means all, 0 none.",
    minimum=-1,
)
DATA_SKIPPING_STATS_COLUMNS = _statistics.names(
    "dataSkippingStatsColumns", "Columns with statistics, in place of the leading ones."
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
    "cleanup.dryRun", False, "Log the files that cleanup would delete, but delete nothing."
)

_purge = Definitions(Section.PURGE)

PURGE_TX_LOG_RETENTION_HOURS = _purge.hours(
    "purge.txLogRetentionHours",
    720,
    "Hours to keep version files.",
    (Alias(PREFIX + "logRetention.duration", WholeDuration("milliseconds"), _hours_of, "2592000000"),),
)
PURGE_DEFAULT_RETENTION_HOURS = _purge.hours(
    "purge.defaultRetentionHours",
    168,
    "Hours to keep unreferenced splits, unless PURGE specifies a retention.",
)
PURGE_MIN_RETENTION_HOURS = _purge.hours(
    "purge.minRetentionHours", 24, "Minimum split retention that PURGE accepts."
)
PURGE_RETENTION_CHECK_ENABLED = _purge.boolean(
    "purge.retentionCheckEnabled",
    True,
    "Reject a PURGE whose retention is below purge.minRetentionHours.",
)
PURGE_PARALLELISM = _purge.integer(
    "purge.parallelism",
    0,
    "Number of parallel deletes; auto (0) chooses by the machine.",
    minimum=0,
    maximum=_MAX_THREADS,
    names=(("auto", 0),),
)
PURGE_MAX_FILES_TO_DELETE = _purge.integer(
    "purge.maxFilesToDelete", 1_000_000, "Maximum number of files that one PURGE deletes.", minimum=1
)
PURGE_DELETE_RETRIES = _purge.integer(
    "purge.deleteRetries", 3, "Number of retries of a failed delete.", minimum=0, maximum=100
)

_purge_on_write = Definitions(Section.PURGE_ON_WRITE)

PURGE_ON_WRITE_ENABLED = _purge_on_write.boolean(
    "purgeOnWrite.enabled", False, "Purge after writes and merges."
)
PURGE_ON_WRITE_TRIGGER_AFTER_MERGE = _purge_on_write.boolean(
    "purgeOnWrite.triggerAfterMerge", True, "Purge after every merge."
)
PURGE_ON_WRITE_TRIGGER_AFTER_WRITES = _purge_on_write.integer(
    "purgeOnWrite.triggerAfterWrites",
    10,
    "Purge after a write whose version is a multiple of this number; 0 means after no write.",
    minimum=0,
)
PURGE_ON_WRITE_SPLIT_RETENTION_HOURS = _purge_on_write.hours(
    "purgeOnWrite.splitRetentionHours", 168, "Hours that purge-on-write keeps unreferenced splits."
)
PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS = _purge_on_write.hours(
    "purgeOnWrite.txLogRetentionHours", 720, "Hours that purge-on-write keeps version files."
)

# --- publishing ---------------------------------------------------------------------------------------

_publish = Definitions(Section.PUBLISH)

PUBLISH_DELTA_ENABLED = _publish.boolean(
    "publish.delta.enabled", False, "Publish every version as a version of Delta Lake, after its commit."
)

# --- merge --------------------------------------------------------------------------------------------

_merge = Definitions(Section.MERGE)

MERGE_TARGET_SIZE = _merge.size(
    "merge.targetSize", "100M", "Target size of merged splits, unless MERGE specifies one.", minimum="1"
)
MERGE_MAX_SOURCE_SPLITS = _merge.integer(
    "merge.maxSourceSplitsPerMerge",
    1000,
    "Maximum number of splits to merge into one, unless MERGE specifies it.",
    minimum=2,
)
MERGE_MAX_DELETED_SHARE = _merge.ratio(
    "merge.maxDeletedShare",
    0.3,
    "A merge rewrites a split of any size if more than this share of its rows is deleted.",
)
MERGE_PARALLELISM = _merge.integer(
    "merge.parallelism",
    0,
    "Number of splits a merge builds in parallel; auto (0) means one per CPU.",
    minimum=0,
    maximum=_MAX_THREADS,
    names=(("auto", 0),),
)

_delete = Definitions(Section.DELETE)

DELETE_MODE = _delete.choice(
    "delete.mode",
    ("vectors", "rewrite"),
    "vectors",
    "Record the deleted rows of a split beside it (vectors), or write it again without them (rewrite).",
)

_merge_on_write = Definitions(Section.MERGE_ON_WRITE)

MERGE_ON_WRITE_ENABLED = _merge_on_write.boolean(
    "mergeOnWrite.enabled", False, "Merge small splits after a write, once there are enough of them."
)
MERGE_ON_WRITE_ASYNC_ENABLED = _merge_on_write.boolean(
    "mergeOnWrite.async.enabled", True, "Merge in the background; the write returns without waiting."
)
MERGE_ON_WRITE_TARGET_SIZE = _merge_on_write.size(
    "mergeOnWrite.targetSize", "4G", "Target size of merged splits.", minimum="1M"
)
MERGE_ON_WRITE_BATCH_CPU_FRACTION = _merge_on_write.ratio(
    "mergeOnWrite.batchCpuFraction",
    0.167,
    "Fraction of the CPUs that one batch of merges may use; at least one CPU.",
)
MERGE_ON_WRITE_MAX_CONCURRENT_BATCHES = _merge_on_write.integer(
    "mergeOnWrite.maxConcurrentBatches", 3, "Number of merge batches that run in parallel.", minimum=1
)
MERGE_ON_WRITE_MIN_BATCHES_TO_TRIGGER = _merge_on_write.integer(
    "mergeOnWrite.minBatchesToTrigger",
    1,
    "Merge when there are more small splits than this many batches of one split per CPU in use.",
    minimum=1,
)
MERGE_ON_WRITE_SHUTDOWN_TIMEOUT_MS = _merge_on_write.milliseconds(
    "mergeOnWrite.shutdownTimeoutMs", 300_000, "Time that an exiting process waits for its merges."
)

_skipped_files = Definitions(Section.SKIPPED_FILES)

SKIPPED_FILES_TRACKING_ENABLED = _skipped_files.boolean(
    "skippedFiles.trackingEnabled",
    True,
    "Record splits that a merge cannot read, and skip them until the cooldown ends.",
)
SKIPPED_FILES_COOLDOWN_HOURS = _skipped_files.hours(
    "skippedFiles.cooldownDuration", 24, "Hours before a merge retries a skipped split."
)

# --- protocol -----------------------------------------------------------------------------------------

_protocol = Definitions(Section.PROTOCOL)

PROTOCOL_AUTO_UPGRADE = _protocol.boolean(
    "protocol.autoUpgrade",
    True,
    "Let checkpoints raise older tables to protocol 4 and splits to 5; if false, JSON and no new splits.",
)
PROTOCOL_CONVERT_JVM_TABLES = _protocol.boolean(
    "protocol.convertJvmTables",
    False,
    "Let writes and merges convert tables of the JVM to protocol 5, which the JVM can no longer use.",
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
    "indexing.fastfields", "Columns to store as fast fields, for sorting and aggregation."
)
INDEXING_STORE_ONLY_FIELDS = _indexing.names(
    "indexing.storeonlyfields", "Columns to store but not index; they are not searchable."
)
INDEXING_INDEX_ONLY_FIELDS = _indexing.names(
    "indexing.indexonlyfields",
    "Columns to index but not store in the index; this library still reads them back.",
)
INDEXING_JSON_MODE = _indexing.choice(
    "indexing.json.mode", ("full", "minimal"), "full", "How much of structs, arrays and maps is indexed."
)
INDEXING_TEXT_INDEX_RECORD_OPTION = _indexing.choice(
    "indexing.text.indexRecordOption",
    ("basic", "freq", "position"),
    "position",
    "Index detail of text columns: documents, frequencies, or positions (for phrase queries).",
)
INDEXING_TEXT_MAX_TOKEN_LENGTH = _indexing.integer(
    "indexing.text.maxTokenLength",
    255,
    "Maximum token length in bytes; longer tokens are not indexed.",
    minimum=1,
    maximum=65_530,
    names=(("default", 255), ("legacy", 40), ("tantivy_max", 65_530), ("min", 1)),
    aliases=(Alias(PREFIX + "indexing.tokenLength"),),
)

INDEXING_TYPEMAP = _indexing.family(
    "indexing.typemap.",
    "field",
    "Index type of a column (string, text, json, ip); or a type, with its columns as the value.",
)
INDEXING_TOKENIZER = _indexing.family(
    "indexing.tokenizer.",
    "field",
    "Tokenizer of a text column; or a tokenizer, with its columns as the value.",
)
INDEXING_INDEX_RECORD_OPTION = _indexing.family(
    "indexing.indexrecordoption.",
    "field",
    "Index detail of one text column: basic, freq or position.",
)
INDEXING_TOKEN_LENGTH = _indexing.family(
    "indexing.tokenLength.",
    "field",
    "Maximum token length of a column; or a length, with its columns as the value.",
)

# --- splits -------------------------------------------------------------------------------------------

_splits = Definitions(Section.WRITING)

WRITE_TARGET_SPLIT_SIZE = _splits.size(
    "write.targetSplitSize",
    "1G",
    "Size at which the writer closes a split and starts the next one.",
    minimum="1K",
)
WRITE_OPTIMIZE_ENABLED = _splits.boolean(
    "write.optimizeWrite.enabled",
    False,
    "Rebalance rows by partition and write.targetSplitSize before an enabled Spark session writes them.",
)
INDEX_WRITER_HEAP_SIZE = _splits.size(
    "indexWriter.heapSize", "256M", "Memory for building the index of a split.", minimum="32M"
)
READ_PARALLELISM = _splits.integer(
    "read.parallelism", 4, "Number of splits to scan or search in parallel.", minimum=1, maximum=_MAX_THREADS
)
READ_TASK_SIZE = _splits.size(
    "read.taskSize", "128M", "Total size of the splits that one Spark task reads.", minimum="1K"
)
READ_MIN_TASKS = _splits.integer(
    "read.minTasks",
    0,
    "Minimum number of Spark tasks per read, if there are enough splits; 0 means one per driver core.",
    minimum=0,
)
READ_MAX_SPLITS_PER_TASK = _splits.integer(
    "read.maxSplitsPerTask", 1000, "Maximum number of splits that one Spark task reads.", minimum=1
)
READ_ENGINE = _splits.choice(
    "read.engine",
    ("auto", "native", "python"),
    "auto",
    "Scan with Spark's own Parquet reader or in Python; searches always run in Python.",
)
READ_NATIVE_MAX_FILES = _splits.integer(
    "read.native.maxFiles",
    20_000,
    "Number of splits above which Python plans a scan, and not Spark itself.",
    minimum=0,
)
DISK_CACHE_PATH = _splits.text(
    "cache.disk.path", "", "Directory of the local index cache; empty means the user's cache directory."
)
DISK_CACHE_MAX_SIZE = _splits.size(
    "cache.disk.maxSize",
    "10G",
    "Maximum size of the local index cache; the oldest indexes are evicted.",
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
