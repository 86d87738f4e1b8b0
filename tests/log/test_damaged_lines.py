import pytest

from indextables.log.actions import invalid_action, invalid_json, invalid_utf8

LINES = b'{"a":1}\n\n{"b":2}{"c":3}\r\n  {"d":4}\n'


@pytest.mark.parametrize(("position", "line"), [(0, 1), (1, 3), (2, 3), (3, 4)])
def test_an_object_is_named_by_its_line(position, line):
    error = invalid_action("a file", LINES, position, ValueError("why"))
    assert str(error) == f"a file: line {line} is not a valid action (why)"


def test_an_object_that_spans_lines_is_named_by_its_number():
    error = invalid_action("a file", b'{"a":1}\n{"b":\n2}', 1, ValueError("why"))
    assert str(error) == "a file: action 2 is not a valid action (why)"


def test_the_first_line_that_is_not_json_is_named():
    message = str(invalid_json("a file", LINES + b"{\nx\n", ValueError("why")))
    assert message.startswith("a file: line 5 is not a valid action (")


def test_endless_nesting_is_reported_as_such():
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    message = str(invalid_json("a file", LINES + deep, RecursionError()))
    assert message == "a file: line 5 is not a valid action (it is nested too deeply)"


def test_the_line_with_invalid_utf8_is_named():
    lines = LINES + b'{"a":"\xff"}'
    with pytest.raises(UnicodeDecodeError) as caught:
        lines.decode()
    message = str(invalid_utf8("a file", lines, caught.value))
    assert message.startswith("a file: line 5 is not a valid action ('utf-8' codec")
