import pickle

from indextables.log.decode import decode_tail
from indextables.log.entries import LoadedEntries, MemorySource, empty_entries
from indextables.log.replay import replay_entries
from support.log_samples import add, log_file


def test_entries_in_memory_are_loaded_unchanged():
    entries = replay_entries(empty_entries(), decode_tail([log_file(0, add("a", size=3), add("b", size=4))]))
    source = MemorySource(entries)
    assert (source.num_files, source.total_bytes) == (2, 7)
    assert source.load(None, ["path"]) == LoadedEntries(entries, manifests=0, manifests_skipped=0)


def test_no_entries_have_no_bytes():
    source = MemorySource(empty_entries())
    assert (source.num_files, source.total_bytes) == (0, 0)
    assert pickle.loads(pickle.dumps(source)) == source
