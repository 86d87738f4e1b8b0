from collections.abc import Callable

import pytest

from state_tables import TableBuilder


@pytest.fixture
def builder(tmp_path) -> Callable[..., TableBuilder]:
    """Makes builders of a table in a folder of its own; options are written with `__` for a dot."""

    def build(*partition_by: str, **options: str) -> TableBuilder:
        given = {key.replace("__", "."): value for key, value in options.items()}
        return TableBuilder(str(tmp_path / "table"), partition_by, given)

    return build
