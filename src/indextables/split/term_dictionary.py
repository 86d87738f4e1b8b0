"""Tantivy's term dictionary: from a term to its ordinal, and from there to its postings and positions.

A dictionary is a section of a .term file, of which only parts may be present. Terms, term infos and postings have the
same order.

    section:   FST | TermInfoStore | u64 length of the store | u32 1 | u32 1
    FST:       u64 2 | u64 type | nodes | u64 number of keys | u64 address of the root
    store:     u64 length of the metas | u64 number of terms | metas | packed term infos

The address of a node is that of its last byte; a node is read backwards, and its targets lie before it. An ordinal is
the sum of the outputs on the way to a term.
"""

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from indextables.split.index_chunks import CHUNK_BYTES
from indextables.split.needs import IndexFiles
from indextables.split.tantivy_files import Section, read_exactly

# Dictionaries up to this size are fetched whole: that is faster than one more round trip.
WHOLE_DICTIONARY_BYTES: Final = 1_500_000

_SECTION_TAIL: Final = struct.Struct("<QII")
_STORE_HEADER: Final = struct.Struct("<QQ")
_FST_HEADER: Final = struct.Struct("<QQ")
_FST_TAIL: Final = struct.Struct("<QQ")
_FST_VERSION: Final = 2

# Inputs that fit into the state byte of a node, by their number; 0 says that the input is a byte of its own.
_COMMON_INPUTS: Final = b"\0te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
_EMPTY_FINAL_NODE: Final = 0
# Nodes with more transitions have a table of 256 bytes.
_MAX_UNINDEXED: Final = 32
_USUAL_NODE_BYTES: Final = 256
_MAX_NODE_BYTES: Final = 8192

# Per 256 terms: data offset, document frequency, postings and positions of the first, and three bit widths.
_META: Final = struct.Struct("<QIQIQIBBB")
_TERMS_PER_BLOCK: Final = 256
_OVERREAD_BYTES: Final = 8
_BLOCKS_PER_OFFSET: Final = 16

# The builder of an FST writes the unshared descendants of a node just before it. It finds equal endings again among the
# nodes that it wrote recently, so shared descendants are often not far before these.
_MAX_OWN_BYTES: Final = 128 * 1024
_RECENT_BYTES: Final = 128 * 1024
_FAR_NODE_BYTES: Final = 32 * 1024

# Term infos of so few candidates are fetched before the term is known.
_MAX_EAGER_TERMS: Final = 16 * 1024
_SAMPLE_BYTES: Final = 32 * 1024


class Dictionary(NamedTuple):
    """The numbers of one dictionary; `fst_bytes` and `root` are relative to its section.

    Only large dictionaries have the rest: the bytes of the nodes on many paths by address, and where the packed term
    infos of every `_BLOCKS_PER_OFFSET`th block start.
    """

    name: str
    section: Section
    fst_bytes: int
    root: int
    num_terms: int
    nodes: Mapping[int, bytes]
    data_offsets: Sequence[int]

    @property
    def is_large(self) -> bool:
        """Whether lookups fetch parts of the dictionary, instead of all of it."""
        return bool(self.data_offsets)

    @property
    def metas_start(self) -> int:
        """Where the metas start in the file."""
        return self.section.start + self.fst_bytes + _STORE_HEADER.size

    @property
    def data_start(self) -> int:
        """Where the packed term infos start in the file."""
        return self.metas_start + -(-self.num_terms // _TERMS_PER_BLOCK) * _META.size

    @property
    def data_end(self) -> int:
        """Where the packed term infos end in the file."""
        return self.section.end - _SECTION_TAIL.size

    def opening(self) -> list[Section]:
        """Return what Tantivy reads when it opens the dictionary."""
        fst_end = self.section.start + self.fst_bytes
        return [
            Section(self.section.start, self.section.start + _FST_HEADER.size),
            Section(fst_end - _FST_TAIL.size, self.metas_start),
            Section(self.data_end, self.section.end),
        ]


def read_dictionary(
    files: IndexFiles, name: str, section: Section, *, whole_bytes: int = WHOLE_DICTIONARY_BYTES
) -> Dictionary:
    """Return the numbers of a dictionary that is completely present; it is large beyond `whole_bytes`.

    Raises ValueError for an unknown layout.
    """
    size = section.end - section.start

    def read(layout: struct.Struct, start: int) -> tuple[int, ...]:
        if start < 0 or start + layout.size > size:
            raise ValueError(f"a dictionary of {name} is too short")
        at = section.start + start
        return layout.unpack(read_exactly(files, name, at, at + layout.size))

    store_bytes, *versions = read(_SECTION_TAIL, size - _SECTION_TAIL.size)
    fst_bytes = size - _SECTION_TAIL.size - store_bytes
    fst_version, _ = read(_FST_HEADER, 0)
    num_keys, root = read(_FST_TAIL, fst_bytes - _FST_TAIL.size)
    metas_bytes, num_terms = read(_STORE_HEADER, fst_bytes)
    if versions != [1, 1] or fst_version != _FST_VERSION or root >= fst_bytes or num_keys != num_terms:
        raise ValueError(f"a dictionary of {name} has an unknown layout")
    if metas_bytes != -(-num_terms // _TERMS_PER_BLOCK) * _META.size:
        raise ValueError(f"a dictionary of {name} has metas of {metas_bytes} bytes for {num_terms} terms")
    found = Dictionary(name, section, fst_bytes, root, num_terms, {}, ())
    if size <= whole_bytes or not num_terms:
        return found
    return found._replace(nodes=_frequent_nodes(files, found), data_offsets=_data_offsets(files, found))


# --- nodes --------------------------------------------------------------------------------------------


class AbsentBytesError(Exception):
    """Bytes of a dictionary that are not present; offsets in the file."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(start, end)
        self.section = Section(start, end)


class Node:
    """A node: whether a term ends here, and its transitions in the order of their inputs."""

    __slots__ = (
        "_address_bytes",
        "_data",
        "_output_bytes",
        "_outputs_end",
        "_targets_end",
        "final_output",
        "inputs",
        "is_final",
        "start",
    )

    def __init__(self, data: bytes, address: int) -> None:
        """Decode the node that ends with `data`. Raises IndexError if it starts before."""
        self._data = data
        at = len(data) - 1  # of the last byte that was read
        state = data[at]
        is_single, is_adjacent = bool(state & 0x80), state >= 0xC0
        self.is_final = not is_single and bool(state & 0x40)
        number = state & 0x3F
        count = 1 if is_single else number
        if not number:
            at -= 1
            if not is_single:
                count = 256 if _at(data, at) == 1 else _at(data, at)
        inputs_end = at + 1
        sizes = 0
        if not is_adjacent:
            at -= 1
            sizes = _at(data, at)
        if not is_single:
            inputs_end = at - 256 * (count > _MAX_UNINDEXED)
            at = inputs_end - count
        self._address_bytes, self._output_bytes = sizes >> 4, sizes & 0xF
        self._targets_end = at
        self._outputs_end = at - count * self._address_bytes
        low = self._outputs_end - (count + self.is_final) * self._output_bytes
        if low < 0:
            raise IndexError("the node starts before the data")
        is_common = is_single and number
        self.inputs = (
            _COMMON_INPUTS[number : number + 1] if is_common else data[inputs_end - count : inputs_end][::-1]
        )
        self.start = address + 1 - (len(data) - low)
        self.final_output = int.from_bytes(data[low : low + self._output_bytes], "little") * self.is_final

    def target(self, position: int) -> int:
        """Return the address that a transition leads to. Raises ValueError for an impossible one."""
        size = self._address_bytes
        if not size:
            return self.start - 1
        end = self._targets_end - position * size
        delta = int.from_bytes(self._data[end - size : end], "little")
        if delta > self.start:
            raise ValueError("a node leads out of its dictionary")
        return self.start - delta if delta else _EMPTY_FINAL_NODE

    def output(self, position: int) -> int:
        """Return what a transition adds to the ordinal."""
        end = self._outputs_end - position * self._output_bytes
        return int.from_bytes(self._data[end - self._output_bytes : end], "little")


def _at(data: bytes, position: int) -> int:
    if position < 0:
        raise IndexError("the node starts before the data")
    return data[position]


class PresentDictionary:
    """A dictionary of which some ranges of the file are present, besides the nodes that the cold data has."""

    def __init__(self, files: IndexFiles, dictionary: Dictionary) -> None:
        self.numbers = dictionary
        self._files = files
        self._size = files.sizes()[dictionary.name]
        self._present: list[Section] = []
        self._requested: list[Section] = []

    def request(self, sections: Sequence[Section]) -> list[Section]:
        """Return these ranges in whole chunks, without those that were requested before."""
        wanted = []
        for section in sections:
            start = section.start // CHUNK_BYTES * CHUNK_BYTES
            end = min(-(-section.end // CHUNK_BYTES) * CHUNK_BYTES, self._size)
            wanted += self._request(Section(start, end)) if start < end else []
        return wanted

    def request_whole(self) -> list[Section]:
        """Return the range of the whole dictionary, unless it was requested before."""
        return self._request(self.numbers.section)

    def arrive(self) -> None:
        """Say that everything that was requested can be read now."""
        self._present += self._requested
        self._requested.clear()

    def has(self, section: Section) -> bool:
        """Return whether a range of the file is present."""
        return _is_covered(section, self._present)

    def node(self, address: int) -> Node:
        """Return a node. Raises AbsentBytesError, and ValueError for an impossible one."""
        known = self.numbers.nodes.get(address)
        if known is not None:
            try:
                return Node(known, address)
            except IndexError as error:
                raise ValueError("the cold data of a dictionary has a part of a node only") from error
        if not _FST_HEADER.size <= address < self.numbers.fst_bytes:
            raise ValueError("a node leads out of its dictionary")
        end = self.numbers.section.start + address + 1
        first = max(self._present_from(end), self.numbers.section.start)
        for length in (_USUAL_NODE_BYTES, _MAX_NODE_BYTES):
            start = max(end - length, first)
            try:
                return Node(read_exactly(self._files, self.numbers.name, start, end), address)
            except IndexError:
                if start == self.numbers.section.start or length == _MAX_NODE_BYTES:
                    break
        if first <= max(self.numbers.section.start, end - _MAX_NODE_BYTES):
            raise ValueError("a node starts before its dictionary")
        raise AbsentBytesError(end - _MAX_NODE_BYTES, end)

    def info_sections(self, first: int, end: int) -> list[Section]:
        """Return where the infos of the terms from ordinal `first` to `end` (exclusive) are."""
        numbers = self.numbers
        blocks = (first // _TERMS_PER_BLOCK, (end - 1) // _TERMS_PER_BLOCK)
        metas_start = numbers.metas_start
        metas = Section(metas_start + blocks[0] * _META.size, metas_start + (blocks[1] + 1) * _META.size)
        offsets = numbers.data_offsets
        start = offsets[blocks[0] // _BLOCKS_PER_OFFSET]
        after = blocks[1] // _BLOCKS_PER_OFFSET + 1
        stop = offsets[after] + _OVERREAD_BYTES if after < len(offsets) else numbers.section.end
        return [
            metas,
            Section(numbers.data_start + start, min(numbers.data_start + stop, numbers.section.end)),
        ]

    def has_info(self, ordinal: int) -> bool:
        """Return whether the info of a term is present."""
        if self.has(self.numbers.section):
            return True
        # Small dictionaries are fetched whole, and their parts are not listed.
        return bool(self.numbers.data_offsets) and all(
            map(self.has, self.info_sections(ordinal, ordinal + 1))
        )

    def info(self, ordinal: int) -> "TermInfo":
        """Return the info of a term that is present. Raises ValueError if it cannot be right."""
        numbers = self.numbers
        if not 0 <= ordinal < numbers.num_terms:
            raise ValueError("a term has an ordinal that its dictionary has no room for")
        block, position = divmod(ordinal, _TERMS_PER_BLOCK)
        meta_at = numbers.metas_start + block * _META.size
        meta = _META.unpack(read_exactly(self._files, numbers.name, meta_at, meta_at + _META.size))
        offset, frequency, postings, postings_bytes, positions, positions_bytes, *widths = meta
        if not position:
            return TermInfo(
                frequency,
                Section(postings, postings + postings_bytes),
                Section(positions, positions + positions_bytes),
            )
        frequency_bits, postings_bits, positions_bits = widths
        width = frequency_bits + postings_bits + positions_bits
        # The next entry starts where this one ends; the last one of a block is followed by its end alone.
        first_bit = (position - 1) * width
        start, end = first_bit // 8, -(-(first_bit + 2 * width) // 8)
        at = numbers.data_start + offset
        data = read_exactly(self._files, numbers.name, at + start, min(at + end, numbers.section.end))
        bits: int = int.from_bytes(data, "little") >> (first_bit % 8)

        def field(at: int, width: int) -> int:
            return (bits >> at) & ((1 << width) - 1)

        return TermInfo(
            field(postings_bits + positions_bits, frequency_bits),
            Section(postings + field(0, postings_bits), postings + field(width, postings_bits)),
            Section(
                positions + field(postings_bits, positions_bits),
                positions + field(width + postings_bits, positions_bits),
            ),
        )

    def lower_bound(self, key: bytes) -> int:
        """Return the ordinal of the first term that is not below a key. The dictionary must be present."""
        address, ordinal, after = self.numbers.root, 0, self.numbers.num_terms
        for byte in key:
            if address == _EMPTY_FINAL_NODE:
                return after
            node = self.node(address)
            below = bisect_left(node.inputs, byte)
            if below == len(node.inputs):
                return after
            if node.inputs[below] != byte:
                return ordinal + node.output(below)
            if below + 1 < len(node.inputs):
                after = ordinal + node.output(below + 1)
            ordinal, address = ordinal + node.output(below), node.target(below)
        return ordinal

    def _request(self, section: Section) -> list[Section]:
        if _is_covered(section, self._present) or _is_covered(section, self._requested):
            return []
        self._requested.append(section)
        return [section]

    def _present_from(self, end: int) -> int:
        """Return where the present bytes before an offset start. Raises AbsentBytesError if there are none."""
        starts = [each.start for each in self._present if each.start < end <= each.end]
        if not starts:
            raise AbsentBytesError(end - 1, end)
        return min(starts)


def _is_covered(section: Section, sections: Iterable[Section]) -> bool:
    return any(each.start <= section.start and section.end <= each.end for each in sections)


class TermInfo(NamedTuple):
    """In how many documents a term is, and where it is in the postings and the positions of its field."""

    document_frequency: int
    postings: Section
    positions: Section


# --- walks --------------------------------------------------------------------------------------------


class TermWalk:
    """The way to one term. `span` are the ordinals that it can have: one when it is found, none if it is absent.

    The ordinal can be known before the walk `is_done`: then only whether the term exists is not.
    """

    def __init__(self, dictionary: PresentDictionary, key: bytes) -> None:
        self.span = range(dictionary.numbers.num_terms)
        self._dictionary = dictionary
        self._key = key
        self._depth = 0
        self._address = dictionary.numbers.root
        # The descendants of the next node that no other node shares lie above this address.
        self._low = 0
        self.is_done = not self.span

    def advance(self) -> list[Section]:
        """Walk as far as possible, and return the ranges to fetch: for the way so far, and to go on."""
        dictionary = self._dictionary
        if not dictionary.numbers.is_large:
            wanted = dictionary.request_whole()
            if dictionary.has(dictionary.numbers.section):
                self._walk([])
            return wanted
        sections = dictionary.numbers.opening()
        absent = self._walk(sections)
        if absent is not None:
            sections.append(absent)
        if 0 < len(self.span) <= _MAX_EAGER_TERMS:
            sections += dictionary.info_sections(self.span.start, self.span.stop)
        return dictionary.request(sections)

    def _walk(self, passed: list[Section]) -> Section | None:
        """Walk to the end of the key; return what is absent. `passed` receives where the nodes of the way are."""
        dictionary, base = self._dictionary, self._dictionary.numbers.section.start
        while not self.is_done:
            if self._address == _EMPTY_FINAL_NODE:
                self._finish(is_found=self._depth == len(self._key), final_output=0)
                break
            try:
                node = dictionary.node(self._address)
            except AbsentBytesError as absent:
                end = base + self._address + 1
                start = end - _FAR_NODE_BYTES
                if self._low <= self._address:
                    start = max(base + self._low, end - _MAX_OWN_BYTES) - _RECENT_BYTES
                return Section(max(min(start, absent.section.start), base), end)
            passed.append(Section(base + node.start, base + self._address + 1))
            self._step(node)
        return None

    def _step(self, node: Node) -> None:
        if self._depth == len(self._key):
            self._finish(is_found=node.is_final, final_output=node.final_output)
            return
        position = node.inputs.find(self._key[self._depth])
        if position < 0:
            self._finish(is_found=False, final_output=0)
            return
        ordinal, stop = self.span.start, self.span.stop
        if position + 1 < len(node.inputs):
            stop = ordinal + node.output(position + 1)
        self.span = range(ordinal + node.output(position), stop)
        self._address = node.target(position)
        if position:
            self._low = max(self._low, node.target(position - 1) + 1)
        self._depth += 1

    def _finish(self, *, is_found: bool, final_output: int) -> None:
        ordinal = self.span.start + final_output
        self.span = range(ordinal, ordinal + 1) if is_found else range(0)
        self.is_done = True


# --- what is recorded of large dictionaries ------------------------------------------------------------


def _frequent_nodes(files: IndexFiles, dictionary: Dictionary) -> dict[int, bytes]:
    """Return the nodes that several of many evenly spaced terms share: the upper ones, and frequent endings."""
    present = PresentDictionary(files, dictionary)
    present.request_whole()
    present.arrive()
    samples = -(-dictionary.fst_bytes // _SAMPLE_BYTES)
    visits: Counter[int] = Counter()
    for sample in range(samples):
        visits.update(_path(present, sample * dictionary.num_terms // samples))
    base = dictionary.section.start
    nodes = {}
    for address, count in visits.items():
        if count > 1:
            start = present.node(address).start
            nodes[address] = files.read(dictionary.name, base + start, base + address + 1)
    return nodes


def _path(dictionary: PresentDictionary, ordinal: int) -> Iterator[int]:
    """Yield the addresses of the nodes on the way to the term with this ordinal."""
    address = dictionary.numbers.root
    while address != _EMPTY_FINAL_NODE:
        yield address
        node = dictionary.node(address)
        low, high = 0, len(node.inputs)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if node.output(middle) <= ordinal else (low, middle)
        if not node.inputs or (node.is_final and ordinal == node.final_output):
            return
        ordinal -= node.output(low)
        address = node.target(low)


def num_data_offsets(num_terms: int) -> int:
    """Return how many data offsets a large dictionary has."""
    return -(-num_terms // (_TERMS_PER_BLOCK * _BLOCKS_PER_OFFSET))


def _data_offsets(files: IndexFiles, dictionary: Dictionary) -> tuple[int, ...]:
    metas = read_exactly(files, dictionary.name, dictionary.metas_start, dictionary.data_start)
    starts = range(0, len(metas), _META.size * _BLOCKS_PER_OFFSET)
    return tuple(_META.unpack_from(metas, start)[0] for start in starts)
