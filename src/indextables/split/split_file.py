"""What is known of a split when it has been uploaded."""

import msgspec


class SplitFile(msgspec.Struct, frozen=True):
    """An uploaded split: everything that an add action says about it. The path is relative to the table."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time_ms: int
    num_records: int
    min_values: dict[str, str]
    max_values: dict[str, str]
    footer_start_offset: int
    footer_end_offset: int
    uncompressed_size_bytes: int
    doc_mapping_ref: str
    doc_mapping_json: str
    split_tags: tuple[str, ...] = ()
