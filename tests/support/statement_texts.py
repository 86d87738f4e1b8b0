"""Random statements: their values, and the many ways to write each of them."""

from datetime import timedelta

from hypothesis import strategies as st

from indextables.statements import Statement, TableName, TablePath, nodes

_SPACE = st.sampled_from([" ", "  ", "\n", "\t", " /* here */ ", " -- to the end\n", "\r\n"])
_PLACES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
PATHS = _PLACES.filter(str.strip).map(TablePath)
NAMES = st.lists(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True) | _PLACES, min_size=1, max_size=3
)
TARGETS = PATHS | NAMES.map(lambda parts: TableName(tuple(parts)))

CONDITIONS = st.sampled_from(
    [
        "date = '2024-01-01'",
        "`max dest` >= 5 AND target IN (1, 2)",
        "date > DATE '2024-01-01' OR NOT (size <=> null)",
        "name = 'it''s; TARGET SIZE 5' AND max < -1.5",
        'name LIKE "a%" -- and no more',
        "true",
    ]
)
_NUMBERS = st.integers(0, 10**9)
_RETENTIONS = st.tuples(st.integers(0, 10_000), st.sampled_from(["DAYS", "DAY", "HOURS", "HOUR"]))
_MOMENTS = st.sampled_from(["2026-01-31", "2026-01-31T12:00:00Z", "2026-01-31 12:00:00.123+02:00"])


@st.composite
def written(draw: st.DrawFn) -> tuple[Statement, str]:
    """A statement, and a text that says it."""
    statement, words = draw(st.one_of([_PLAIN, _MERGE, _PURGE, _OTHERS]))
    pieces = [_spelled(draw, word) for word in words]
    text = pieces[0]
    for piece in pieces[1:]:
        text += draw(_SPACE) + piece
    before, after = draw(st.sampled_from(["", " ", "\n", "-- first\n", "/* first */"])), draw(_SPACE)
    return statement, before + text + draw(st.sampled_from(["", after, f"{after};", f"{after};{after}"]))


def _spelled(draw: st.DrawFn, word: object) -> str:
    """A word in any case, a keyword by either name; what is quoted, and numbers, as they are."""
    if isinstance(word, TablePath | TableName):
        return _target_text(draw, word)
    if not isinstance(word, str):
        return str(word)
    if word == "INDEXTABLES":
        word = draw(st.sampled_from(["INDEXTABLES", "TANTIVY4SPARK"]))
    return draw(st.sampled_from([word, word.lower(), word.title()])) if word.isupper() else word


def _target_text(draw: st.DrawFn, target: TablePath | TableName) -> str:
    if isinstance(target, TablePath):
        return quoted(draw, target.path)
    return ".".join(_name_text(part) for part in target.parts)


def _name_text(part: str) -> str:
    is_plain = part.isascii() and part.replace("_", "a").isalnum()
    return part if is_plain else "`{}`".format(part.replace("`", "``"))


def quoted(draw: st.DrawFn, text: str) -> str:
    quote = draw(st.sampled_from("'\""))
    escaped = draw(st.sampled_from([quote * 2, f"\\{quote}"]))
    return quote + text.replace("\\", "\\\\").replace(quote, escaped) + quote


def _about(kind: type[Statement], *words: str) -> st.SearchStrategy[tuple[Statement, list[object]]]:
    return TARGETS.map(lambda target: (kind(target), [*words, target]))


_PLAIN = st.one_of(
    _about(nodes.Checkpoint, "CHECKPOINT", "INDEXTABLES"),
    _about(nodes.Compact, "COMPACT", "INDEXTABLES"),
    _about(nodes.DescribeState, "DESCRIBE", "INDEXTABLES", "STATE"),
    _about(nodes.DescribeState, "DESC", "INDEXTABLES", "STATE"),
    _about(nodes.DescribeHistory, "DESCRIBE", "INDEXTABLES", "HISTORY"),
    _about(nodes.DescribeTransactionLog, "DESCRIBE", "INDEXTABLES", "TRANSACTION", "LOG"),
    _about(nodes.TruncateTimeTravel, "TRUNCATE", "INDEXTABLES", "TIME", "TRAVEL"),
    _about(nodes.Repair, "REPAIR", "INDEXFILES", "TRANSACTION", "LOG"),
    _about(nodes.Fsck, "FSCK", "INDEXTABLES"),
    _about(nodes.InvalidateLogCache, "INVALIDATE", "INDEXTABLES", "TRANSACTION", "LOG", "CACHE", "FOR"),
    st.just((nodes.DescribeMergeJobs(), ["DESCRIBE", "INDEXTABLES", "MERGE", "JOBS"])),
    st.just((nodes.DescribeDiskCache(), ["DESCRIBE", "INDEXTABLES", "DISK", "CACHE"])),
    st.just((nodes.DescribeEnvironment(), ["DESCRIBE", "INDEXTABLES", "ENVIRONMENT"])),
    st.just((nodes.FlushDiskCache(), ["FLUSH", "INDEXTABLES", "DISK", "CACHE"])),
    st.just((nodes.InvalidateLogCache(), ["INVALIDATE", "INDEXTABLES", "TRANSACTION", "LOG", "CACHE"])),
)


@st.composite
def _merges(draw: st.DrawFn) -> tuple[Statement, list[object]]:
    target = draw(TARGETS)
    where, most, sources = (
        draw(st.none() | CONDITIONS),
        draw(st.none() | _NUMBERS),
        draw(st.none() | _NUMBERS),
    )
    size = draw(
        st.none()
        | st.sampled_from(
            [("100M", 100 * 1024**2), ("5", 5), ("1.5 gb", 3 * 512 * 1024**2), ("'2 KiB'", 2048)]
        )
    )
    clauses: list[list[object]] = []
    if where is not None:
        # A comment at its end would hide what follows.
        clauses.append(
            ["WHERE", where.lower() if where.isupper() else where, *(["\n"] if "--" in where else [])]
        )
    if size is not None:
        clauses.append(["TARGET", "SIZE", size[0].lower() if draw(st.booleans()) else size[0]])
    if most is not None:
        clauses.append(["MAX", "DEST", "SPLITS", most])
    if sources is not None:
        clauses.append(["MAX", "SOURCE", "SPLITS", "PER", "MERGE", sources])
    ordered = draw(st.permutations(clauses))
    statement = nodes.MergeSplits(
        target,
        None if where is None else where.partition(" --")[0],
        None if size is None else size[1],
        most,
        sources,
    )
    return statement, ["MERGE", "SPLITS", target, *(word for clause in ordered for word in clause)]


@st.composite
def _purges(draw: st.DrawFn) -> tuple[Statement, list[object]]:
    target, is_dry_run = draw(TARGETS), draw(st.booleans())
    splits, log = draw(st.none() | _RETENTIONS), draw(st.none() | _RETENTIONS)
    clauses: list[list[object]] = [["DRY", "RUN"]] if is_dry_run else []
    if splits is not None:
        clauses.append(["OLDER", "THAN", *splits])
    if log is not None:
        clauses.append(["TRANSACTION", "LOG", "RETENTION", *log])
    statement = nodes.Purge(target, _length(splits), _length(log), is_dry_run)
    keyword = draw(st.sampled_from(["INDEXTABLE", "INDEXTABLES"]))
    return statement, [
        "PURGE",
        keyword,
        target,
        *(w for clause in draw(st.permutations(clauses)) for w in clause),
    ]


def _length(retention: tuple[int, str] | None) -> timedelta | None:
    if retention is None:
        return None
    number, unit = retention
    return timedelta(days=number) if unit.startswith("DAY") else timedelta(hours=number)


@st.composite
def _other_statements(draw: st.DrawFn) -> tuple[Statement, list[object]]:
    target, condition, place = draw(TARGETS), draw(CONDITIONS), draw(PATHS)
    version, moment = draw(_NUMBERS), draw(_MOMENTS)
    as_of = draw(st.sampled_from([[], ["AS", "OF"]]))
    restore = ["RESTORE", "INDEXTABLES", target, "TO"]
    return draw(
        st.sampled_from(
            [
                (
                    nodes.DropPartitions(target, condition.partition(" --")[0]),
                    ["DROP", "INDEXTABLES", "PARTITIONS", "FROM", target, "WHERE", condition, "\n"],
                ),
                (nodes.Delete(place), ["DELETE", "FROM", place]),
                (
                    nodes.Delete(place, condition.partition(" --")[0], 'it\'s "here"', is_dry_run=True),
                    [
                        *("DELETE", "FROM", place, "WHERE", condition, "\n"),
                        *("MATCHING", "QUERY", TablePath('it\'s "here"'), "DRY", "RUN"),
                    ],
                ),
                (nodes.Restore(target, version=version), [*restore, "VERSION", *as_of, version]),
                (
                    nodes.Restore(target, timestamp=moment),
                    [*restore, "TIMESTAMP", *as_of, TablePath(moment)],
                ),
                (
                    nodes.Repair(target, place.path),
                    ["REPAIR", "INDEXFILES", "TRANSACTION", "LOG", target, "AT", "LOCATION", place],
                ),
                (nodes.Prewarm(target), ["PREWARM", "INDEXTABLES", target]),
                (
                    nodes.Prewarm(target, ("body", "a_b", "fields"), condition.partition(" --")[0]),
                    [
                        *(
                            "PREWARM",
                            "INDEXTABLES",
                            target,
                            "FOR",
                            "FIELDS",
                            "(body",
                            ",",
                            "`a_b`,fields",
                            ")",
                        ),
                        *("WHERE", condition, "\n"),
                    ],
                ),
                (nodes.Fsck(target, is_deep=True), ["FSCK", "INDEXTABLES", target, "DEEP"]),
                (
                    nodes.TruncateTimeTravel(target, is_dry_run=True),
                    ["TRUNCATE", "INDEXTABLES", "TIME", "TRAVEL", target, "DRY", "RUN"],
                ),
                (
                    nodes.DescribeTransactionLog(target, includes_all=True),
                    ["DESCRIBE", "INDEXTABLES", "TRANSACTION", "LOG", target, "INCLUDE", "ALL"],
                ),
            ]
        )
    )


_MERGE, _PURGE, _OTHERS = _merges(), _purges(), _other_statements()
