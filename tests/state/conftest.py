from collections.abc import Callable

import pytest

from indextables.state.avro import decode
from support.state_tables import TableBuilder


@pytest.fixture
def builder(tmp_path) -> Callable[..., TableBuilder]:
    """Creates builders of a table in its own folder; in option names, `__` stands for a dot."""

    def build(*partition_by: str, **options: str) -> TableBuilder:
        given = {key.replace("__", "."): value for key, value in options.items()}
        return TableBuilder(str(tmp_path / "table"), partition_by, given)

    return build


@pytest.fixture(scope="module", params=["all by columns", "few by records"])
def each_decoder(request):
    """Lets the fast decoder read the small manifests of tests, too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "all by columns":
            patch.setattr(decode, "_FEW_RECORDS", -1)
        yield
