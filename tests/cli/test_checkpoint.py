"""`indextables checkpoint`."""

import json

import pytest

from indextables import IndexTable
from indextables.log.segment import BaseFormat
from support.cli_tables import Invoke

FORMATS = {"avro": BaseFormat.AVRO_STATE, "json": BaseFormat.JSON, "parquet": BaseFormat.PARQUET}


@pytest.mark.parametrize("name", list(FORMATS))
def test_format_of_the_checkpoint_can_be_chosen(invoke: Invoke, table_path: str, name: str) -> None:
    result = invoke("checkpoint", table_path, "--format", name, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "table_path": IndexTable(table_path).snapshot.context.url,
        "status": "SUCCESS",
        "previous_format": None,
        "new_format": FORMATS[name].value,
        "version": 3,
        "num_files": 2,
        "total_bytes": 2 * 1_258_291,
        "message": f"version 3 has a checkpoint in the format {FORMATS[name].value}",
    }
    state = {row["property"]: row["value"] for row in IndexTable(table_path).describe_state().to_pylist()}
    assert state["format"] == FORMATS[name].value


def test_text_output_has_the_formats_and_the_size(invoke: Invoke, table_path: str) -> None:
    invoke("checkpoint", table_path, "--format", "JSON")
    first, second = invoke("checkpoint", table_path, "--format", "parquet").stdout.splitlines()
    assert first.startswith("checkpoint of version 3 in format parquet (previously json), in ")
    assert second == "2 files, 2.4 MiB"


def test_format_beats_the_same_setting_as_an_option(invoke: Invoke, table_path: str) -> None:
    result = invoke(
        "checkpoint", table_path, "--json", "--format", "parquet", "--option", "state.format=json"
    )
    assert json.loads(result.stdout)["new_format"] == "parquet"


def test_setting_chooses_the_format_if_no_format_is_given(invoke: Invoke, table_path: str) -> None:
    result = invoke("checkpoint", table_path, "--json", "--option", "state.format=json")
    assert json.loads(result.stdout)["new_format"] == "json"
