import json

import pyarrow as pa

from indextables.log.decode import decode_tail
from indextables.log.entries import remove_lines
from support.log_samples import FULL_ADD, add, log_bytes, log_file, rows


def test_remove_lines_carry_partition_values_and_sizes():
    entries = decode_tail(
        [log_file(1, {"add": FULL_ADD}, add("b", size=2, partitionValues={"a": None}))]
    ).adds
    lines = remove_lines(entries, 77, data_change=False)
    assert [json.loads(line) for line in lines.splitlines()] == [
        {
            "remove": {
                "path": FULL_ADD["path"],
                "deletionTimestamp": 77,
                "dataChange": False,
                "partitionValues": FULL_ADD["partitionValues"],
                "size": FULL_ADD["size"],
            }
        },
        {
            "remove": {
                "path": "b",
                "deletionTimestamp": 77,
                "dataChange": False,
                "partitionValues": {},
                "size": 2,
            }
        },
    ]


def test_remove_lines_survive_a_round_trip():
    entries = decode_tail([log_file(1, add("a", size=3))]).adds
    tail = decode_tail([log_bytes(2, remove_lines(entries, 77, data_change=True))])
    assert rows(tail.removes) == [
        {
            "path": "a",
            "deletionTimestamp": 77,
            "dataChange": True,
            "partitionValues": {},
            "size": 3,
            "version": 2,
            "sequence": 0,
        }
    ]


def test_chunked_entries_are_removed_in_order():
    entries = decode_tail([log_file(1, add("a"), add("b"))]).adds
    lines = remove_lines(pa.concat_tables([entries.slice(1), entries.slice(0, 1)]), 1, data_change=True)
    assert [json.loads(line)["remove"]["path"] for line in lines.splitlines()] == ["b", "a"]


def test_no_entries_give_no_remove_lines():
    assert remove_lines(decode_tail([]).adds, 1, data_change=True) == b""
