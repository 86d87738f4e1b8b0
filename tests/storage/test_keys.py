"""Keys: nothing leaves the root, and partition folders match those of Hive and Spark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import UnsafePathError
from indextables.storage import (
    escape_partition_value,
    partition_path,
    relative_key,
    unescape_partition_value,
    validate_key,
)

# What ExternalCatalogUtils.escapePathName escapes, written out.
SPARK_ESCAPES = {
    **{chr(code): f"%{code:02X}" for code in range(1, 0x20)},
    '"': "%22",
    "#": "%23",
    "%": "%25",
    "'": "%27",
    "*": "%2A",
    "/": "%2F",
    ":": "%3A",
    "=": "%3D",
    "?": "%3F",
    "\\": "%5C",
    "\x7f": "%7F",
    "{": "%7B",
    "[": "%5B",
    "]": "%5D",
    "^": "%5E",
}

hostile_text = st.text(alphabet=st.sampled_from(list("./\\%2eEfF0aA:=?#\0\n é~@|")), max_size=24)
any_text = st.one_of(st.text(max_size=40), hostile_text, st.sampled_from(["..", ".", "A/A", "B B", "%", "é"]))
rules = settings(max_examples=300)


@pytest.mark.parametrize(
    "key", ["a", "a/b.split", "date=2024-01-01/x", "%2e%2e/%2F", "a b", "é", "col=..", "...", "a..b"]
)
def test_plain_keys_are_safe(key):
    assert validate_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        ".",
        "../x",
        "x/..",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "..\\x",
        "a\0",
    ],
)
def test_keys_that_leave_or_confuse_are_unsafe(key):
    with pytest.raises(UnsafePathError):
        validate_key(key)


@rules
@given(any_text)
def test_key_is_refused_or_stays_below_the_root(key):
    try:
        validate_key(key)
    except UnsafePathError:
        return
    depth = 0
    for segment in key.split("/"):
        assert segment not in ("", ".", "..")
        depth += 1
    assert depth >= 1
    assert not set(key) & {"\\", "\0"}


@pytest.mark.parametrize(
    ("path", "root", "key"),
    [
        ("part.split", "s3://bucket/table", "part.split"),
        ("s3://bucket/table/part.split", "s3://bucket/table", "part.split"),
        ("s3a://bucket/table/d=1/part.split", "s3://bucket/table", "d=1/part.split"),
        ("S3N://bucket/table/part.split", "s3a://bucket/table/", "part.split"),
        ("s3://bucket/part.split", "s3://bucket", "part.split"),
        ("file:/x/part.split", "file:///x", "part.split"),
        ("file:///x/part.split", "file:///x", "part.split"),
        ("file://localhost/x/part.split", "file:///x", "part.split"),
        ("/x/part.split", "file:///x", "part.split"),
        ("/x/y=%2F/part.split", "/x", "y=%2F/part.split"),
        ("abfss://c@acc.dfs.core.windows.net/t/p", "abfss://c@acc.dfs.core.windows.net/t", "p"),
        ("wasbs://c@acc.blob.core.windows.net/t/p", "abfss://c@acc.dfs.core.windows.net/t", "p"),
        ("azure://c/t/p", "abfss://c@acc.dfs.core.windows.net/t", "p"),
        ("abfs://c@acc.dfs.core.windows.net/t/p", "az://c/t", "p"),
        ("gs://bucket/t/p", "gs://bucket/t", "p"),
        ("memory://name/t/p", "memory://name/t", "p"),
    ],
)
def test_absolute_path_below_the_root_becomes_its_key(path, root, key):
    assert relative_key(path, root) == key


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("s3://other/table/part.split", "s3://bucket/table"),
        ("s3://bucket/table2/part.split", "s3://bucket/table"),
        ("s3://bucket/table", "s3://bucket/table"),
        ("s3://bucket/table/../other/x", "s3://bucket/table"),
        ("s3://bucket/x/../table/y", "s3://bucket/table"),
        ("s3://bucket/table//x", "s3://bucket/table"),
        ("s3://key:secret@bucket/table/x", "s3://bucket/table"),
        ("gs://bucket/table/x", "s3://bucket/table"),
        ("/table/x", "s3://bucket/table"),
        ("/etc/passwd", "file:///x"),
        ("/x/../etc/passwd", "file:///x"),
        ("file:/etc/passwd", "/x"),
        ("file://elsewhere/x/y", "/x"),
        ("hdfs://node/x/y", "/x"),
        ("http://host/x/y", "/x"),
        ("../x", "/x"),
        ("abfss://c@other.dfs.core.windows.net/t/p", "abfss://c@acc.dfs.core.windows.net/t"),
        ("abfss://d@acc.dfs.core.windows.net/t/p", "abfss://c@acc.dfs.core.windows.net/t"),
        ("memory://other/t/p", "memory://name/t"),
    ],
)
def test_path_outside_the_root_is_refused(path, root):
    with pytest.raises(UnsafePathError):
        relative_key(path, root)


def test_refused_path_does_not_show_credentials_in_it():
    with pytest.raises(UnsafePathError) as caught:
        relative_key("s3://key:CANARY@bucket/table/x", "s3://bucket/table")
    assert "CANARY" not in str(caught.value)


@rules
@given(any_text)
def test_any_path_in_a_log_is_refused_or_a_safe_key(path):
    for spelling in (path, f"/root/{path}", f"file:{path}", f"s3://bucket/table/{path}"):
        for root in ("file:///root", "s3://bucket/table"):
            try:
                key = relative_key(spelling, root)
            except UnsafePathError:
                continue
            assert validate_key(key) == key


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("2024-01-01", "2024-01-01"),
        ("A/A", "A%2FA"),
        ("B B", "B B"),
        ("%", "%25"),
        ("é", "é"),
        ("..", ".."),
        ("a=b", "a%3Db"),
        ("12:30:00", "12%3A30%3A00"),
        ("null", "null"),
        ("{x}", "%7Bx}"),
        ("a\0b", "a%00b"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_partition_values_are_escaped_as_spark_does(value, escaped):
    assert escape_partition_value(value) == escaped


@rules
@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1))
def test_escaping_is_sparks_character_by_character(value):
    assert escape_partition_value(value) == "".join(SPARK_ESCAPES.get(char, char) for char in value)


@rules
@given(any_text.filter(lambda value: value not in ("", "__HIVE_DEFAULT_PARTITION__")))
def test_partition_value_round_trips(value):
    assert unescape_partition_value(escape_partition_value(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("%", "%"), ("%2", "%2"), ("%zz", "%zz"), ("%2f%2F", "//"), ("100%25", "100%"), ("%+1", "%+1")],
)
def test_percent_that_starts_no_escape_stands_for_itself(text, value):
    assert unescape_partition_value(text) == value


def test_null_partition_reads_back_as_null():
    assert unescape_partition_value("__HIVE_DEFAULT_PARTITION__") is None


def test_partition_path_names_each_column():
    values = [("date", "2024-01-01"), ("region", None), ("a/b", "x=y")]
    assert partition_path(values) == "date=2024-01-01/region=__HIVE_DEFAULT_PARTITION__/a%2Fb=x%3Dy"
    assert partition_path([]) == ""


texts = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=400)


@rules
@given(st.lists(st.tuples(texts | hostile_text, st.none() | texts | hostile_text), min_size=1, max_size=4))
def test_no_partition_value_leaves_the_root(values):
    path = validate_key(partition_path(values))
    segments = path.split("/")
    assert len(segments) == len(values)
    assert all(len(segment.encode()) <= 255 for segment in segments)


@rules
@given(texts, texts)
def test_different_values_have_different_folders(one, other):
    folders = {partition_path([("column", value)]) for value in (one, other) if value}
    assert len(folders) == len({one, other} - {""})


def test_very_long_values_with_a_common_start_stay_apart():
    one, other = partition_path([("c", "x" * 5000)]), partition_path([("c", "x" * 4999 + "y")])
    assert one != other
    assert one.startswith("c=xxx")
