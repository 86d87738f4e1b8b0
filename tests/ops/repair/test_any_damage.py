"""After any damage to any log files, a repair completes and recovers every row exactly once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.ops.fsck.operation import fsck
from indextables.ops.repair.operation import repair_in_place
from indextables.ops.runner import LocalRunner
from support.repair_tables import all_rows, newest, table_rows, whole_table
from support.tables import FORMATS, checkpoint, context, log_keys

MOST_FILES = 40
# Keep most files intact: combinations of damage matter, not the amount.
KINDS = (*["whole"] * 12, "deleted", "empty", "cut", "scribbled", "flipped")


def damage(store, key: str, kind: str, place: float) -> None:
    data = store.get(key)
    at = int(place * len(data))
    match kind:
        case "deleted":
            store.delete_many([key])
        case "empty":
            store.put(key, b"")
        case "cut":
            store.put(key, data[:at])
        case "scribbled":
            store.put(key, b"\x00\xfe}{" * 8)
        # Undetectable: a Parquet checkpoint has no checksums.
        case "flipped" if not key.endswith(".parquet"):
            store.put(key, data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])


@given(
    form=st.sampled_from(sorted(FORMATS)),
    second=st.sampled_from([None, *sorted(FORMATS)]),
    damages=st.lists(
        st.tuples(st.sampled_from(KINDS), st.floats(0, 1, exclude_max=True)),
        min_size=MOST_FILES,
        max_size=MOST_FILES,
    ),
)
@settings(max_examples=15)
def test_all_rows_survive_any_damage_to_the_log(form, second, damages):
    store = whole_table(form)
    if second is not None:
        checkpoint(store, second)
    keys = log_keys(store)
    assert len(keys) <= MOST_FILES
    for key, (kind, place) in zip(keys, damages, strict=False):
        damage(store, key, kind, place)
    repair_in_place(context(store), LocalRunner())
    assert table_rows(store) == all_rows()
    assert newest(store).gap is None
    assert fsck(context(store), LocalRunner(), deep=False).is_clean
