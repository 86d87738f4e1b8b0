import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.entries import action_lines
from indextables.log.fields import STRING_MAP
from support.log_samples import texts

SCHEMA = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("values", STRING_MAP), ("tags", pa.list_(pa.string()))]
)

some_rows = st.fixed_dictionaries(
    {
        "path": texts,
        "size": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "values": st.dictionaries(texts, texts, max_size=3).map(lambda values: list(values.items()))
        | st.none(),
        "tags": st.lists(texts, max_size=2) | st.none(),
    }
)


@settings(max_examples=50)
@given(st.lists(some_rows, max_size=5))
def test_each_row_is_a_line_without_nulls(rows):
    lines = action_lines("add", pa.Table.from_pylist(rows, schema=SCHEMA))
    expected = [
        {name: dict(value) if name == "values" else value for name, value in row.items() if value is not None}
        for row in rows
    ]
    assert [json.loads(line)["add"] for line in lines.split(b"\n")[:-1]] == expected


def test_many_rows_and_chunks_are_encoded_together():
    table = pa.concat_tables([pa.table({"path": [str(number) for number in range(10_000)]})] * 2)
    lines = action_lines("remove", table).splitlines()
    assert len(lines) == 20_000
    assert lines[0] == lines[10_000] == b'{"remove":{"path":"0"}}'


def test_no_rows_give_no_lines():
    assert action_lines("add", SCHEMA.empty_table()) == b""
