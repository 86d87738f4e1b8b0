"""Deliberate bugs that real systems have had, and the tests that must catch them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug: the file, the replacement, and the smallest set of tests that must fail."""

    name: str
    file: str
    original: str
    mutant: str
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "groups that the index has cut off",
        "search/split_aggregate.py",
        'if isinstance(by, Terms) and answer[_GROUPS]["sum_other_doc_count"] > 0:\n',
        "if False:\n",
        ("tests/ops/test_groupings.py",),
    ),
    Mutation(
        "blind retry of a merge",
        "table/plan.py",
        "    live_groups = tuple(group for group in intent.groups if changed.isdisjoint(group.sources))\n"
        "    given_up = tuple(group for group in intent.groups if not changed.isdisjoint(group.sources))\n",
        "    live_groups: tuple[MergeGroup, ...] = intent.groups\n    given_up: tuple[MergeGroup, ...] = ()\n",
        ("tests/table/test_conflicts.py",),
    ),
    Mutation(
        "merge that brings deleted rows back",
        "table/plan.py",
        'if vectors.get(path) != group.vectors.get(path, "")\n',
        "if path not in vectors\n",
        ("tests/ops/rows/test_delete_conflicts.py",),
    ),
    Mutation(
        "delete that undoes a concurrent delete",
        "table/plan.py",
        "    if not pc.all(_has_equal(before, live), min_count=0).as_py():\n",
        "    if live.num_rows < before.num_rows:\n",
        ("tests/ops/rows/test_delete_conflicts.py",),
    ),
    Mutation(
        "two upserts of the same key that both insert it",
        "ops/upsert.py",
        "intent=Upsert, before_each_try=work.check\n",
        "intent=Upsert\n",
        ("tests/ops/rows/test_upsert_conflicts.py",),
    ),
    Mutation(
        "upsert in which null keys match",
        "ops/source_keys.py",
        "            values = pc.unique(column).drop_null()\n",
        "            values = pc.unique(column)\n",
        ("tests/ops/rows/test_upsert.py",),
    ),
    Mutation(
        "upsert in which one of several rows of the source wins",
        "ops/upsert.py",
        "        self._check_single(np.unique(keys))\n",
        "",
        ("tests/ops/rows/test_upsert.py",),
    ),
    Mutation(
        "purge of vectors that are in use",
        "ops/references.py",
        '    return pa.concat_arrays([pc.unique(entries["path"]), vectors])\n',
        '    return pa.concat_arrays([pc.unique(entries["path"]), vectors.slice(0, 0)])\n',
        ("tests/ops/rows/test_delete_maintenance.py",),
    ),
    Mutation(
        "published version that shows deleted rows again",
        "ops/publish/operation.py",
        '        gone = pc.unique(pa.concat_arrays([gone, changes.adds["path"].combine_chunks()]))\n',
        "        gone = pc.unique(gone)\n",
        ("tests/ops/publish/test_delta.py",),
    ),
    Mutation(
        "native scans that return deleted rows",
        "spark/deleted_rows.py",
        "        return rows + (place << _ROW_BITS)\n",
        "        return rows[:1] + (place << _ROW_BITS)\n",
        ("tests/spark/test_native_scans.py",),
    ),
    Mutation(
        "columns of a split that are found by name although they have ids",
        "schema/field_ids.py",
        "    if by_id:\n",
        "    if not by_id:\n",
        ("tests/split/test_field_ids.py",),
    ),
    Mutation(
        "restore that gives an id to a second column",
        "table/field_ids.py",
        "with_field_ids(older, known, max_field_id(current))",
        "with_field_ids(older, known)",
        ("tests/table/test_field_ids.py",),
    ),
    Mutation(
        "statistics that are found by a column's name of today",
        "pruning/files.py",
        "        stored = shape.stored_names[name]\n",
        "        stored = name\n",
        ("tests/ops/columns/test_column_stories.py",),
    ),
    Mutation(
        "name of a former column that a new one gets",
        "table/field_ids.py",
        "    names -= stored_paths(metadata.schema_string)\n",
        "    names = frozenset()\n",
        ("tests/ops/columns/test_column_stories.py",),
    ),
    Mutation(
        "append of a column that a concurrent commit dropped",
        "table/schema_change.py",
        '        if field_id not in new:\n            return f"the column {field.name!r}, which was dropped"\n',
        "        if field_id not in new:\n            continue\n",
        ("tests/ops/columns/test_column_conflicts.py",),
    ),
    Mutation(
        "predicate over a wider column that keeps the literals of its type",
        "search/predicate_query.py",
        "conjunct if narrow_schema is None else bind(conjunct, narrow_schema)",
        "conjunct",
        ("tests/ops/columns/test_column_stories.py",),
    ),
    Mutation(
        "purge that ages by modification time",
        "ops/purge/plan.py",
        "pc.coalesce(removed_ms, pc.max_element_wise(modified_ms, references.forgotten_until_ms))",
        "modified_ms",
        ("tests/ops/purge/test_purge_rules.py",),
    ),
    Mutation(
        "checkpoint labelled one too high",
        "state/writer.py",
        "state_version=header.version,",
        "state_version=header.version + 1,",
        ("tests/ops/checkpoint/test_checkpoint.py",),
    ),
    Mutation(
        "tombstone that hides a re-added path",
        "state/changes.py",
        "revived = before.tombstones.filter(pc.is_in(before.tombstones, value_set=added))",
        "revived = before.tombstones.slice(0, 0)",
        ("tests/ops/test_readded_paths.py",),
    ),
    Mutation(
        "truncated maximum",
        "pruning/statistics.py",
        "_raised(maximum, options.max_length)",
        "_cut(maximum, options.max_length)",
        ("tests/pruning/test_statistics.py",),
    ),
    Mutation(
        "unfsynced commit",
        "storage/local.py",
        "            os.fsync(descriptor)\n        finally:\n            os.close(descriptor)\n        yield temporary",
        "            pass\n        finally:\n            os.close(descriptor)\n        yield temporary",
        ("tests/storage/test_local.py",),
    ),
    Mutation(
        "swallowed manifest read error",
        "state/source.py",
        "        return [with_keys(entries, store.url) for entries in read_manifests(files, columns)]",
        "        try:\n"
        "            return [with_keys(entries, store.url) for entries in read_manifests(files, columns)]\n"
        "        except Exception:\n"
        "            return []",
        ("tests/state/test_state_source.py", "tests/ops/checkpoint/test_checkpoint.py"),
    ),
    Mutation(
        "lost acknowledgement treated as a conflict",
        "log/version_file.py",
        "return Written(version) if found == data else Conflict(version)",
        "return Conflict(version)",
        ("tests/table/test_lost_answers.py",),
    ),
    Mutation(
        "checkpoint that builds on a damaged manifest",
        "ops/checkpoint/entry_check.py",
        "        damaged = list(_damaged_manifests(snapshot))\n",
        "        return None\n        damaged = list(_damaged_manifests(snapshot))\n",
        ("tests/ops/checkpoint/test_damaged_manifest.py",),
    ),
    Mutation(
        "repair that builds on the base it found damaged",
        "table/whole_base.py",
        "    return WholeBase(found, tuple(damaged))",
        "    return WholeBase(snapshot, tuple(damaged))",
        ("tests/ops/checkpoint/test_damaged_manifest.py",),
    ),
    Mutation(
        "automatic state that carries a truncated manifest on",
        "state/source.py",
        "return size is not None and info.size_bytes in (UNKNOWN_COUNT, size)",
        "return size is not None",
        ("tests/ops/checkpoint/test_damaged_manifest.py",),
    ),
    Mutation(
        "compaction that commits before it checks",
        "ops/checkpoint/operation.py",
        "    whole = on_whole_base(snapshot, entries.problem if is_read_whole else check)\n"
        "    snapshot = whole.snapshot\n",
        "    whole = on_whole_base(snapshot, lambda _: None)\n",
        ("tests/ops/checkpoint/test_damaged_manifest.py",),
    ),
    Mutation(
        "append to a version that cannot be read",
        "table/commit.py",
        "    check_may_build_on(snapshot)\n",
        "",
        ("tests/ops/checkpoint/test_damaged_manifest.py",),
    ),
    Mutation(
        "upgrade that only states mention",
        "table/commit.py",
        "    actions = (*_unlogged_protocol(plan, snapshot), *plan.actions)\n",
        "    actions = plan.actions\n",
        ("tests/table/test_state_protocol.py",),
    ),
    Mutation(
        "unchecked protocol of a state",
        "state/state_manifest.py",
        "    if parsed.protocol_version > READER_VERSION:\n",
        "    if False:\n",
        ("tests/table/test_state_protocol.py",),
    ),
)
