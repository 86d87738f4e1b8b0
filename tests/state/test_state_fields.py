"""The classes of the state manifest agree with the table of fields: names on disk and defaults."""

import msgspec
import pytest

from indextables.state.schemas import MANIFEST_INFO_FIELDS, REQUIRED, STATE_MANIFEST_FIELDS
from indextables.state.state_manifest import ManifestInfo, StateManifest

# Decoded defaults that are another kind of collection than the encoded ones.
DECODED_COLLECTIONS = {"tombstones": [], "skips": (), "unknown_actions": ()}


@pytest.mark.parametrize(
    ("kind", "fields"), [(ManifestInfo, MANIFEST_INFO_FIELDS), (StateManifest, STATE_MANIFEST_FIELDS)]
)
def test_a_class_has_exactly_the_fields_of_its_table(kind, fields):
    assert set(kind.__struct_fields__) - {"foreign"} == {field.attribute for field in fields}
    assert len({field.name for field in fields}) == len(fields)


def test_a_manifest_info_is_encoded_under_the_names_of_its_table():
    info = ManifestInfo("manifests/manifest-a.avro", 1, 2, 3)
    assert list(msgspec.to_builtins(info)) == [field.name for field in MANIFEST_INFO_FIELDS]


@pytest.mark.parametrize(
    ("kind", "fields"), [(ManifestInfo, MANIFEST_INFO_FIELDS), (StateManifest, STATE_MANIFEST_FIELDS)]
)
def test_a_class_has_the_defaults_of_its_table(kind, fields):
    declared = {field.name: field for field in msgspec.structs.fields(kind)}
    for field in fields:
        found = declared[field.attribute]
        if field.default is REQUIRED:
            # A new state manifest has the format version that this release writes; a stored one must say which.
            assert found.required or field.attribute == "format_version", field.attribute
            continue
        default = found.default_factory() if found.default_factory is not msgspec.NODEFAULT else found.default
        if field.attribute == "tombstones":
            default = default.to_pylist()
        assert default == DECODED_COLLECTIONS.get(field.attribute, field.default), field.attribute
