"""Our reading of Tantivy's dictionaries, compared with the terms that were indexed and with Tantivy's own answers."""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.split.tantivy_files import DirectoryFiles, Section, read_composite
from indextables.split.term_dictionary import Dictionary, PresentDictionary, TermWalk, read_dictionary

FIELDS = ("a", "b")


def build(directory: Path, documents: Iterable[Sequence[bytes]]) -> None:
    """Index documents with the same terms in two fields of bytes."""
    builder = tantivy.SchemaBuilder()
    for name in FIELDS:
        builder.add_bytes_field(name, indexed=True)
    index = tantivy.Index(builder.build(), path=str(directory))
    writer = index.writer(100_000_000, num_threads=1)
    for terms in documents:
        document = tantivy.Document()
        for name, term in itertools.product(FIELDS, terms):
            document.add_bytes(name, term)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()


def dictionaries(directory: Path, whole_bytes: int = 10**9) -> tuple[DirectoryFiles, list[Dictionary]]:
    files = DirectoryFiles(directory)
    (name,) = (name for name in files.sizes() if name.endswith(".term"))
    sections = read_composite(files, name).sections.values()
    return files, [read_dictionary(files, name, section, whole_bytes=whole_bytes) for section in sections]


def whole(files: DirectoryFiles, dictionary: Dictionary) -> PresentDictionary:
    present = PresentDictionary(files, dictionary)
    present.request_whole()
    present.arrive()
    return present


def ordinal(present: PresentDictionary, key: bytes) -> int | None:
    """Walk to a term, and check that each round asks for something new."""
    walk = TermWalk(present, key)
    while not walk.is_done:
        walk.advance()
        present.arrive()
    assert len(walk.span) <= 1
    return walk.span.start if walk.span else None


def check(directory: Path, documents: Sequence[Sequence[bytes]], absent: Iterable[bytes]) -> None:
    """Check ordinals, document frequencies and the order of postings for all terms, and that others are absent."""
    build(directory, documents)
    frequencies: dict[bytes, int] = defaultdict(int)
    for terms in documents:
        for term in set(terms):
            frequencies[term] += 1
    expected = sorted(frequencies)
    files, found = dictionaries(directory)
    assert len(found) == len(FIELDS)
    for dictionary in found:
        present = whole(files, dictionary)
        assert dictionary.num_terms == len(expected)
        end = 0
        for number, key in enumerate(expected):
            assert ordinal(present, key) == number
            info = present.info(number)
            assert info.document_frequency == frequencies[key]
            assert info.postings.start == end < info.postings.end
            assert info.positions.start == info.positions.end == 0
            end = info.postings.end
        for key in absent:
            assert ordinal(present, key) == (expected.index(key) if key in frequencies else None)
            assert present.lower_bound(key) == sum(each < key for each in expected)
    files.close()


keys = st.one_of(
    st.binary(max_size=6),
    st.text("abc", max_size=8).map(str.encode),
    st.text("etaoinsrh/. -012", max_size=12).map(str.encode),
    st.binary(min_size=60, max_size=300),
)


@settings(max_examples=40)
@given(
    documents=st.lists(st.lists(keys, max_size=8), min_size=1, max_size=40).filter(any),
    absent=st.lists(keys, max_size=10),
)
def test_every_term_of_a_random_dictionary_is_found(tmp_path_factory, documents, absent):
    check(tmp_path_factory.mktemp("index"), documents, absent)


def test_nodes_with_many_transitions(tmp_path):
    documents = [
        [bytes([first]), bytes([first, second])] for first in range(256) for second in range(0, 256, 5)
    ]
    check(tmp_path, documents, [b"", b"\x00\x01", b"\xff\xff\xff"])


def test_terms_in_very_many_documents(tmp_path):
    documents = [[b"all", b"%d" % (number % 7), b"%d" % number] for number in range(3000)]
    check(tmp_path, documents, [b"al", b"alll", b"3000"])


def test_positions_are_those_of_tantivy(tmp_path):
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", index_option="position")
    index = tantivy.Index(builder.build(), path=str(tmp_path))
    writer = index.writer(50_000_000, num_threads=1)
    rng = random.Random(1)
    texts = [" ".join(f"w{int(rng.paretovariate(0.7)) % 900}" for _ in range(20)) for _ in range(2000)]
    for text in texts:
        writer.add_document(tantivy.Document(body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    files, (dictionary,) = dictionaries(tmp_path)
    present = whole(files, dictionary)
    terms = sorted({word for text in texts for word in text.split()})
    postings_end = positions_end = 0
    for number, term in enumerate(terms):
        assert ordinal(present, term.encode()) == number
        info = present.info(number)
        assert info.document_frequency == searcher.doc_freq("body", term)
        assert (info.postings.start, info.positions.start) == (postings_end, positions_end)
        postings_end, positions_end = info.postings.end, info.positions.end
    (positions_file,) = (name for name in files.sizes() if name.endswith(".pos"))
    assert read_composite(files, positions_file).sections[0] == Section(0, positions_end)
    files.close()


class FetchedFiles:
    """Files of which only requested ranges can be read."""

    def __init__(self, files: DirectoryFiles) -> None:
        self._files = files
        self._fetched: list[Section] = []

    def sizes(self):
        return self._files.sizes()

    def fetch(self, sections: Iterable[Section]) -> None:
        self._fetched += sections

    def read(self, name: str, start: int, end: int) -> bytes:
        assert any(each.start <= start and end <= each.end for each in self._fetched), "not fetched"
        return self._files.read(name, start, end)

    @property
    def num_bytes(self) -> int:
        return sum(each.end - each.start for each in set(self._fetched))


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> tuple[DirectoryFiles, Dictionary, list[bytes]]:
    """A dictionary of random ids, and one of words with frequent endings, in one."""
    rng = random.Random(3)
    endings = ["", "s", "ed", "ing", "ation", "ations", "er", "ers"]
    terms = {f"{rng.getrandbits(96):024x}".encode() for _ in range(60_000)}
    terms |= {f"w{rng.randrange(20_000)}{rng.choice(endings)}".encode() for _ in range(30_000)}
    directory = tmp_path_factory.mktemp("large")
    ordered = sorted(terms)
    build(directory, [ordered[start : start + 100] for start in range(0, len(ordered), 100)])
    files, (dictionary, _) = dictionaries(directory, whole_bytes=100_000)
    return files, dictionary, ordered


def test_terms_of_a_large_dictionary_take_few_rounds_and_little_of_it(large):
    files, dictionary, terms = large
    assert dictionary.is_large
    rng = random.Random(4)
    rounds, sizes = [], []
    for number in [0, len(terms) - 1, *rng.sample(range(len(terms)), 150)]:
        fetched = FetchedFiles(files)
        present = PresentDictionary(fetched, dictionary)
        walk = TermWalk(present, terms[number])
        rounds.append(0)
        while sections := walk.advance():
            fetched.fetch(sections)
            present.arrive()
            rounds[-1] += 1
        assert walk.is_done
        assert walk.span == range(number, number + 1)
        assert present.has_info(number)
        assert present.info(number).document_frequency == 1
        sizes.append(fetched.num_bytes)
    assert sum(count <= 2 for count in rounds) > 0.9 * len(rounds)
    assert max(rounds) <= 6
    assert max(sizes) < 700_000 < dictionary.section.end - dictionary.section.start


def test_absent_terms_of_a_large_dictionary_are_absent(large):
    files, dictionary, terms = large
    known = set(terms)
    rng = random.Random(5)
    for _ in range(100):
        key = bytearray(rng.choice(terms))
        key[rng.randrange(len(key))] = rng.choice(b"0123456789abcdefw~")
        fetched = FetchedFiles(files)
        present = PresentDictionary(fetched, dictionary)
        walk = TermWalk(present, bytes(key))
        while sections := walk.advance():
            fetched.fetch(sections)
            present.arrive()
        assert bool(walk.span) == (bytes(key) in known)


def test_lookups_share_what_was_requested(large):
    files, dictionary, terms = large
    fetched = FetchedFiles(files)
    present = PresentDictionary(fetched, dictionary)
    walks = [TermWalk(present, terms[1000]), TermWalk(present, terms[1000])]
    first, second = (walk.advance() for walk in walks)
    assert first
    assert not second
    assert not walks[1].is_done


@pytest.mark.parametrize("damage", ["flip", "zero", "noise"])
def test_damaged_dictionaries_raise_value_error_or_give_an_answer(tmp_path, damage):
    build(tmp_path, [[b"%d" % number, b"word", b"%x" % number] for number in range(2000)])
    (path,) = tmp_path.glob("*.term")
    intact = path.read_bytes()
    rng = random.Random(damage)
    for _ in range(60):
        data = bytearray(intact)
        at = rng.randrange(len(data))
        match damage:
            case "flip":
                data[at] ^= 1 << rng.randrange(8)
            case "zero":
                data[at : at + 500] = bytes(len(data[at : at + 500]))
            case "noise":
                data[at : at + 50] = rng.randbytes(len(data[at : at + 50]))
        path.write_bytes(data)
        try:
            files, found = dictionaries(tmp_path, whole_bytes=rng.choice([0, 10**9]))
            for dictionary in found:
                present = whole(files, dictionary)
                for key in (b"word", b"12", b"7cf", b"absent"):
                    number = ordinal(present, key)
                    if number is not None:
                        present.info(number)
                    present.lower_bound(key)
        except ValueError:
            continue


def test_a_truncated_dictionary_is_a_value_error(tmp_path):
    build(tmp_path, [[b"one", b"two"]])
    files, (dictionary, _) = dictionaries(tmp_path)
    section = dictionary.section
    for end in range(section.start, section.end):
        with pytest.raises(ValueError, match=r"too short|unknown layout|metas"):
            read_dictionary(files, dictionary.name, Section(section.start, end))
