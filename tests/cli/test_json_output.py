"""JSON documents."""

import json
import math

import pytest

from indextables.cli.json_output import print_json


def test_text_is_utf_8_and_undecodable_names_are_escaped(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json({"path": "é/\udcff", "ratio": 0.5})
    text = capsysbinary.readouterr().out
    assert "é".encode() in text
    assert json.loads(text) == {"path": "é/\udcff", "ratio": 0.5}
    assert math.isclose(json.loads(text)["ratio"], 0.5)
