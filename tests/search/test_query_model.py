"""Queries find what a simple model finds in the rows: random corpora, random queries of every shape.

The model cuts and compares in Python and knows nothing of the grammar's nodes; each condition renders itself
as query text, so that the grammar, the compiler and the index are tested together.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import build_index, found_rows, json_field, string_field, text_field

MAPPING = DocMapping(
    (text_field("body"), string_field("tag"), FieldMapping("n", FieldKind.I64), json_field("j"))
)

WORDS = ["data", "lake", "date", "dat", "Lake", "spark", "sparks", "s", "été", "x1", "日本"]
TAGS = ["data", "Data lake", "data-lake", "sparks", "", "x1"]

Row = dict


@dataclass(frozen=True)
class Condition:
    """Query text, and the rows that it should find."""

    text: str
    matches: Callable[[Row], bool]

    def __repr__(self):
        return self.text


def cut(text):
    return [word.lower() for word in re.findall(r"[^\W_]+", text or "")]


def in_fields(name, condition_on_body, condition_on_tag):
    """A leaf over one field by name, or over the default fields."""
    on_body = lambda row: condition_on_body(cut(row["body"]))  # noqa: E731
    on_tag = lambda row: row["tag"] is not None and condition_on_tag(row["tag"])  # noqa: E731
    if name == "body:":
        return on_body
    return on_tag if name == "tag:" else (lambda row: on_body(row) or on_tag(row))


def word(name, text):
    matches = in_fields(name, lambda tokens: text.lower() in tokens, lambda tag: tag == text)
    return Condition(f"{name}{text}", matches)


def phrase(name, words):
    text = " ".join(words)
    wanted = cut(text)

    def on_body(tokens):
        return any(tokens[at : at + len(wanted)] == wanted for at in range(len(tokens)))

    return Condition(f'{name}"{text}"', in_fields(name, on_body, lambda tag: tag == text))


def near(first, second, slop):
    def on_body(row):
        tokens = cut(row["body"])
        places = [
            (a, b) for a, x in enumerate(tokens) for b, y in enumerate(tokens) if (x, y) == (first, second)
        ]
        return any(abs(b - a - 1) <= slop for a, b in places)

    return Condition(f'body:"{first} {second}"~{slop}', on_body)


def prefix(name, text):
    def on_body(tokens):
        return any(token.startswith(text.lower()) for token in tokens)

    return Condition(f"{name}{text}*", in_fields(name, on_body, lambda tag: tag.startswith(text)))


def phrase_prefix(name, first, text):
    def on_body(tokens):
        pairs = pairwise(tokens)
        return any(left == first.lower() and right.startswith(text.lower()) for left, right in pairs)

    return Condition(
        f'{name}"{first} {text}"*', in_fields(name, on_body, lambda tag: tag.startswith(f"{first} {text}"))
    )


def wildcard(name, text):
    """Texts with ? and *; on words in any case."""

    def fits(value, pattern):
        regex = re.escape(pattern).replace(r"\?", ".").replace(r"\*", ".*")
        return re.fullmatch(regex, value, re.DOTALL) is not None

    def on_body(tokens):
        return any(fits(token, text.lower()) for token in tokens)

    return Condition(f"{name}{text}", in_fields(name, on_body, lambda tag: fits(tag, text)))


def regex(name, pattern):
    def on_body(tokens):
        return any(re.fullmatch(pattern, token, re.IGNORECASE) for token in tokens)

    return Condition(
        f"{name}/{pattern}/", in_fields(name, on_body, lambda tag: re.fullmatch(pattern, tag) is not None)
    )


def json_between(low, high, opening, closing):
    def inside(value):
        if isinstance(value, list):
            return any(map(inside, value))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        above = low is None or (value >= low if opening == "[" else value > low)
        below = high is None or (value <= high if closing == "]" else value < high)
        return above and below

    ends = ["*" if end is None else str(end) for end in (low, high)]
    return Condition(
        f"j.a:{opening}{ends[0]} TO {ends[1]}{closing}",
        lambda row: row["j"] is not None and inside(json.loads(row["j"])["a"]),
    )


def json_word(pattern, matches):
    def fits(row):
        value = None if row["j"] is None else json.loads(row["j"])["a"]
        return isinstance(value, str) and any(map(matches, cut(value)))

    return Condition(f"j.a:{pattern}", fits)


@cache
def edits(left, right):
    """Edit distance with transpositions, straight from the definition."""
    if not left or not right:
        return len(left) + len(right)
    ways = [
        edits(left[1:], right) + 1,
        edits(left, right[1:]) + 1,
        edits(left[1:], right[1:]) + (left[0] != right[0]),
    ]
    if len(left) > 1 and len(right) > 1 and left[0] == right[1] and left[1] == right[0]:
        ways.append(edits(left[2:], right[2:]) + 1)
    return min(ways)


def fuzzy(name, text, distance):
    def on_body(tokens):
        return any(edits(token, text.lower()) <= distance for token in tokens)

    return Condition(
        f"{name}{text}~{distance}", in_fields(name, on_body, lambda tag: edits(tag, text) <= distance)
    )


def between(low, high, opening, closing):
    def matches(row):
        n = row["n"]
        if n is None:
            return False
        above = low is None or (n >= low if opening == "[" else n > low)
        below = high is None or (n <= high if closing == "]" else n < high)
        return above and below

    ends = ["*" if end is None else str(end) for end in (low, high)]
    return Condition(f"n:{opening}{ends[0]} TO {ends[1]}{closing}", matches)


def compared(operator, number):
    compare = {"": int.__eq__, ">": int.__gt__, ">=": int.__ge__, "<": int.__lt__, "<=": int.__le__}[operator]
    return Condition(f"n:{operator}{number}", lambda row: row["n"] is not None and compare(row["n"], number))


def one_of(values):
    listed = " ".join(f'"{value}"' for value in values)
    return Condition(f"tag:IN [{listed}]", lambda row: row["tag"] in values)


def exists(name):
    if name == "j.a":
        return Condition(
            "j.a:*", lambda row: row["j"] is not None and json.loads(row["j"])["a"] not in (None, [])
        )
    if name == "body":
        return Condition("body:*", lambda row: bool(cut(row["body"])))
    return Condition(f"{name}:*", lambda row: row[name] is not None)


def both(left, right):
    return Condition(f"({left} AND {right})", lambda row: left.matches(row) and right.matches(row))


def either(left, right):
    return Condition(f"({left} OR {right})", lambda row: left.matches(row) or right.matches(row))


def negated(operand):
    return Condition(f"(NOT {operand})", lambda row: not operand.matches(row))


def signed(required, optional, excluded):
    return Condition(
        f"(+{required} {optional} -{excluded})",
        lambda row: required.matches(row) and not excluded.matches(row),
    )


def but_not(wanted, excluded):
    return Condition(f"({wanted} -{excluded})", lambda row: wanted.matches(row) and not excluded.matches(row))


def boosted(operand):
    return Condition(f"({operand})^2.5", operand.matches)


names = st.sampled_from(["", "body:", "tag:"])
words = st.sampled_from(WORDS)
numbers = st.integers(-3, 3)
ends = st.none() | numbers
fractions = st.none() | numbers | st.sampled_from([-2.5, -0.25, 0.5, 1.0, 2.75, -(2**63), 2**63 - 1])
json_numbers = st.sampled_from([-3, -2.5, -1, -0.25, 0, 0.5, 1, 2.75, 3, 2**53, -(2**63), 2**64 - 4096])

leaves = st.one_of(
    st.just(Condition("*", lambda row: True)),
    st.builds(word, names, words),
    st.builds(phrase, names, st.lists(words, min_size=2, max_size=3)),
    st.builds(near, st.just("data"), st.sampled_from(["lake", "spark"]), st.integers(0, 4)),
    st.builds(prefix, names, st.sampled_from(["d", "dat", "D", "lak", "sparks", "é", "日"])),
    st.builds(phrase_prefix, names, words, st.sampled_from(["d", "la", "lake", "s"])),
    st.builds(wildcard, names, st.sampled_from(["d?t", "?ata", "dat?", "s*k?", "L?ke", "??", "Data*?lake"])),
    st.builds(regex, names, st.sampled_from(["dat[ae]?", "[ls].*", "Spark(s)?", "x\\d", "data.lake"])),
    st.builds(json_between, fractions, fractions, st.sampled_from("[{"), st.sampled_from("]}")).filter(
        lambda condition: "* TO *" not in condition.text
    ),
    st.just(json_word("d?t*", re.compile("d.t.*").fullmatch)),
    st.just(json_word("/SPARKS?/", re.compile("sparks?").fullmatch)),
    st.just(json_word("[dat TO lake}", lambda token: "dat" <= token < "lake")),
    st.builds(fuzzy, names, st.sampled_from(["data", "dtaa", "lakes", "spark", "x"]), st.integers(0, 2)),
    st.builds(between, ends, ends, st.sampled_from("[{"), st.sampled_from("]}")),
    st.builds(compared, st.sampled_from(["", ">", ">=", "<", "<="]), numbers),
    st.builds(one_of, st.lists(st.sampled_from(TAGS), min_size=1, max_size=3)),
    st.builds(exists, st.sampled_from(["body", "tag", "n", "j.a"])),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(both, inner, inner),
        st.builds(either, inner, inner),
        st.builds(negated, inner),
        st.builds(signed, inner, inner, inner),
        st.builds(but_not, inner, inner),
        st.builds(boosted, inner),
    ),
    max_leaves=6,
)
rows = st.fixed_dictionaries(
    {
        "body": st.none()
        | st.lists(words, max_size=6).map(" ".join)
        | st.lists(words, max_size=4).map("-".join),
        "tag": st.none() | st.sampled_from(TAGS),
        "n": st.none() | numbers,
        "j": st.none()
        | st.one_of(
            json_numbers, numbers, words, st.lists(numbers, max_size=3), st.sampled_from([None, True])
        ).map(lambda value: json.dumps({"a": value})),
    }
)
SCHEMA = pa.schema([("body", pa.string()), ("tag", pa.string()), ("n", pa.int64()), ("j", pa.string())])


@settings(max_examples=30)
@given(st.lists(rows, min_size=1, max_size=12), st.lists(conditions, min_size=12, max_size=12))
def test_queries_find_what_the_model_finds(corpus, asked):
    index = build_index(MAPPING, pa.Table.from_pylist(corpus, SCHEMA))
    for condition in asked:
        expected = [number for number, row in enumerate(corpus) if condition.matches(row)]
        assert found_rows(index, MAPPING, condition.text) == expected, condition.text
