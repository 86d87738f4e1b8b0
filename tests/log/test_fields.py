"""The classes of actions agree with the table of fields: names on disk, types and defaults."""

import types
import typing
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pytest

from indextables.log.actions import AddAction, Int32, Int64, RemoveAction
from indextables.log.deletion_vectors import DeletionVector
from indextables.log.fields import (
    ADD_FIELDS,
    DELETION_VECTOR,
    FILE_ENTRY_FIELDS,
    REMOVE_FIELDS,
    REQUIRED,
    STRING_LIST,
    STRING_MAP,
)

PYTHON_TYPES = {
    pa.string(): {str},
    pa.int64(): {Int64},
    pa.int32(): {Int32},
    pa.bool_(): {bool},
    STRING_LIST: {tuple[str, ...]},
    STRING_MAP: {Mapping[str, str], Mapping[str, str | None]},
    DELETION_VECTOR: {DeletionVector},
}


def without_none(annotation):
    """The type of a value that is there, and whether it may be missing."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    members = typing.get_args(annotation) if is_union else ()
    if type(None) not in members:
        return annotation, False
    (other,) = set(members) - {type(None)}
    return other, True


@pytest.mark.parametrize(("kind", "fields"), [(AddAction, ADD_FIELDS), (RemoveAction, REMOVE_FIELDS)])
def test_a_class_has_exactly_the_fields_of_its_table(kind, fields):
    declared = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    assert declared == {field.attribute: field.name for field in fields}


@pytest.mark.parametrize(("kind", "fields"), [(AddAction, ADD_FIELDS), (RemoveAction, REMOVE_FIELDS)])
def test_a_class_has_the_types_of_its_table(kind, fields):
    declared = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for field in fields:
        python_type, _ = without_none(declared[field.name])
        assert python_type in PYTHON_TYPES[field.type], field.name


def test_an_add_action_has_the_defaults_of_its_table():
    for declared, field in zip(msgspec.structs.fields(AddAction), ADD_FIELDS, strict=True):
        has_factory = declared.default_factory is not msgspec.NODEFAULT
        default = declared.default_factory() if has_factory else declared.default
        assert default == (msgspec.NODEFAULT if field.default is REQUIRED else field.default), field.name
        assert without_none(declared.type)[1] == (field.default is None), field.name


def test_names_and_ids_are_unique():
    assert len({field.name for field in FILE_ENTRY_FIELDS}) == len(FILE_ENTRY_FIELDS)
    assert len({field.field_id for field in FILE_ENTRY_FIELDS}) == len(FILE_ENTRY_FIELDS)


def test_the_class_of_a_deletion_vector_has_the_fields_of_its_column():
    declared = {field.encode_name for field in msgspec.structs.fields(DeletionVector)}
    assert declared == set(DELETION_VECTOR.names)
