"""Random rows with columns of every kind that is indexed, and random queries, predicates and aggregations for them."""

import ipaddress
import json
import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from indextables.predicates import And, Comparison, In, IsNotNull, IsNull, Not, Operator, Or
from indextables.search import Histogram, Metric, MetricFunction, Terms
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import json_field, string_field, text_field

FIRST_DAY = date(2024, 1, 1)
FIRST_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("body", pa.string()),
        ("stem", pa.string()),
        ("grams", pa.string()),
        ("level", pa.string()),
        ("id", pa.string()),
        ("slow", pa.string()),
        ("n", pa.int64()),
        ("m", pa.int64()),
        ("x", pa.float64()),
        ("z", pa.float64()),
        ("flag", pa.bool_()),
        ("unset", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 2)),
        ("huge", pa.decimal128(38, 2)),
        ("ip", pa.string()),
        ("net", pa.string()),
        ("data", pa.binary()),
        ("attrs", pa.string()),
        ("raw", pa.string()),
    ]
)
MAPPING = DocMapping(
    (
        text_field("body"),
        text_field("stem", tokenizer="en_stem", fast=True),
        text_field("grams", tokenizer="ngram", record="freq"),
        string_field("level"),
        string_field("id"),
        string_field("slow", fast=False),
        FieldMapping("n", FieldKind.I64),
        FieldMapping("m", FieldKind.I64, fast=False),
        FieldMapping("x", FieldKind.F64),
        FieldMapping("z", FieldKind.F64, fast=False),
        FieldMapping("flag", FieldKind.BOOL),
        FieldMapping("unset", FieldKind.BOOL, fast=False),
        FieldMapping("day", FieldKind.DATE),
        FieldMapping("ts", FieldKind.TIMESTAMP, fast=False),
        FieldMapping("price", FieldKind.DECIMAL, scale=2),
        FieldMapping("huge", FieldKind.BIG_DECIMAL, scale=2),
        FieldMapping("ip", FieldKind.IP),
        FieldMapping("net", FieldKind.IP, fast=False),
        FieldMapping("data", FieldKind.BYTES),
        json_field("attrs"),
        json_field("raw", tokenizer="raw", record="basic", fast=False),
    )
)
LEVELS = ("debug", "info", "warn", "error", "été")
ROWS = 4000


def words() -> list[str]:
    """A vocabulary with common beginnings and endings."""
    rng = random.Random(0)
    syllables = [c + v for c in "bdgklmnrst" for v in ("a", "e", "i", "o", "ing", "er")]
    return sorted({"".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)})


VOCABULARY = words()


def rows_of(seed: int) -> pa.Table:
    rng = random.Random(seed)
    vocabulary = VOCABULARY

    def text(length: int) -> str:
        return " ".join(vocabulary[int(rng.paretovariate(0.6)) % len(vocabulary)] for _ in range(length))

    def value(row: int) -> dict[str, Any]:
        number = rng.randrange(-1000, 1000)
        made = {
            "body": text(rng.randint(1, 30)),
            "stem": text(4),
            "grams": text(1),
            "level": rng.choice(LEVELS),
            "id": f"{rng.getrandbits(64):016x}",
            "slow": rng.choice(vocabulary),
            "n": number,
            "m": rng.choice([number, 2**62 + row]),
            "x": rng.choice([rng.random(), float(number), math.inf, math.nan]) if seed % 2 else rng.random(),
            "z": rng.gauss(0, 100),
            "flag": rng.random() < 0.5,
            "unset": rng.choice([True, False, None]),
            "day": FIRST_DAY + timedelta(days=rng.randrange(400)),
            "ts": FIRST_MOMENT + timedelta(microseconds=rng.randrange(10**13)),
            "price": Decimal(rng.randrange(-(10**6), 10**6)).scaleb(-2),
            "huge": Decimal(rng.randrange(-(10**30), 10**30)).scaleb(-2),
            "ip": f"10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(256)}",
            "net": str(ipaddress.ip_address(rng.getrandbits(128))),
            "data": rng.randbytes(rng.randrange(5)),
            "attrs": json.dumps(
                {
                    "name": text(2),
                    "k.dotted": {"deep key": rng.choice(LEVELS)},
                    "count": rng.choice([number, number / 4, 2**63 + number, -1e30]),
                    "ok": rng.random() < 0.5,
                    "at": (FIRST_MOMENT + timedelta(milliseconds=rng.randrange(10**9))).isoformat(),
                    f"key{rng.randrange(300)}": number,
                }
            ),
            "raw": json.dumps({"name": rng.choice(vocabulary), "list": [number, text(1)]}),
        }
        return {name: None if rng.random() < 0.02 else each for name, each in made.items()}

    return pa.Table.from_pylist([value(row) for row in range(ROWS)], SCHEMA)


VALUES = {name: rows_of(1)[name].drop_null().to_pylist()[:30] for name in SCHEMA.names}
WORDS = sorted({word for body in VALUES["body"] for word in body.split()})[:100]

word = st.one_of(st.sampled_from(WORDS), st.sampled_from(["absent", "zzz", "ba", "ming"]))
text_fields = st.sampled_from(["", "body:", "stem:", "slow:", "attrs.name:"])


def _quoted(values: list[str]) -> str:
    return '"' + " ".join(values) + '"'


def _cut(each: str, length: int) -> str:
    return each[:length] or each


def _value_texts(name: str, render: Callable[[Any], str] = str) -> st.SearchStrategy[str]:
    return st.sampled_from(VALUES[name]).map(lambda value: f"{name}:{render(value)}")


def _ranges(name: str, render: Callable[[Any], str] = str) -> st.SearchStrategy[str]:
    ends = st.tuples(st.sampled_from(VALUES[name]), st.sampled_from(VALUES[name])).map(sorted)
    brackets = st.sampled_from(["[{} TO {}]", "{{{} TO {}]", "[{} TO {}}}", "[* TO {1}]", "{{{} TO *}}"])
    return st.tuples(ends, brackets).map(lambda each: f"{name}:{each[1].format(*map(render, each[0]))}")


leaves = st.one_of(
    st.tuples(text_fields, word).map("".join),
    st.tuples(text_fields, st.lists(word, min_size=2, max_size=3).map(_quoted)).map("".join),
    st.tuples(st.sampled_from(["body:", "stem:"]), st.lists(word, min_size=2, max_size=2).map(_quoted)).map(
        lambda each: f"{each[0]}{each[1]}~3"
    ),
    st.tuples(text_fields, word, st.integers(1, 4)).map(lambda each: f"{each[0]}{_cut(each[1], each[2])}*"),
    st.tuples(st.sampled_from(["body:", "slow:"]), word).map(
        lambda each: f"{each[0]}{each[1][:1]}*{each[1][-1:]}"
    ),
    st.tuples(st.sampled_from(["body:", "slow:"]), word).map(lambda each: f"{each[0]}*{each[1][-2:]}"),
    st.tuples(text_fields, word).map(lambda each: f"{each[0]}?{each[1][1:]}"),
    st.tuples(text_fields, word).map(lambda each: f"{each[0]}/{each[1][:2]}.*|{each[1]}/"),
    st.tuples(st.sampled_from(["body:", "stem:"]), word, word).map(
        lambda each: f'{each[0]}"{each[1]} {each[2][:2]}"*'
    ),
    st.tuples(text_fields, word).map(lambda each: f"{each[0]}{each[1]}~1"),
    word.map(lambda each: f"grams:{each}"),
    st.tuples(word, word).map(lambda each: "slow:[{} TO {}]".format(*sorted(each))),
    st.sampled_from(LEVELS).map(lambda each: f"level:{each}"),
    st.lists(word, min_size=1, max_size=4).map(lambda each: f"slow:IN [{' '.join(each)}]"),
    st.lists(word, min_size=20, max_size=30).map(lambda each: f"slow:IN [{' '.join(each)}]"),
    _value_texts("id"),
    st.sampled_from(VALUES["id"]).map(lambda each: f"id:{each[:2]}*"),
    _value_texts("n"),
    _ranges("n"),
    _value_texts("m"),
    _ranges("m"),
    _ranges("z", lambda value: f"{value:.3f}"),
    _ranges("day"),
    _ranges("ts", lambda value: value.strftime("%Y-%m-%dT%H:%M:%SZ").join('""')),
    _value_texts("price"),
    _ranges("huge"),
    _value_texts("ip"),
    st.sampled_from(["ip:10.1.0.0/16", "net:*", "ip:*", "net:8000::/1", "unset:*", "flag:*", "m:*", "z:*"]),
    st.sampled_from(
        ["flag:true", "unset:false", "body:*", "level:*", "slow:*", "attrs.key7:*", "attrs.name:*"]
    ),
    st.sampled_from(["attrs.ok:true", "attrs.k.dotted.deep\\ key:warn", "raw.list:5", "attrs.count:7"]),
    st.sampled_from(["attrs.count:-1e30", "attrs.count:2.25", "attrs.count:9223372036854775809"]),
    st.sampled_from(["attrs.count:>5", "attrs.count:[-3.25 TO 7.5}", "attrs.at:<=1970-01-01", "raw.name:<b"]),
    st.sampled_from(VALUES["attrs"]).map(lambda each: f'attrs.at:"{json.loads(each)["at"]}"'),
    st.sampled_from(VALUES["raw"]).map(lambda each: f"raw.name:{json.loads(each)['name']}"),
    st.just("*"),
)
queries = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda each: f"({each[0]} AND {each[1]})"),
        st.tuples(inner, inner).map(lambda each: f"({each[0]} OR {each[1]})"),
        st.tuples(inner, inner).map(lambda each: f"({each[0]} AND NOT {each[1]})"),
        inner.map(lambda each: f"({each})^2.5"),
    ),
    max_leaves=4,
)

columns = st.sampled_from(
    [name for name in SCHEMA.names if name not in ("attrs", "raw", "body", "stem", "grams")]
)
conditions = st.one_of(
    columns.flatmap(
        lambda name: st.builds(
            Comparison, st.just(name), st.sampled_from(Operator), st.sampled_from(VALUES[name])
        )
    ),
    columns.flatmap(
        lambda name: st.builds(
            lambda values: In(name, tuple(values)), st.lists(st.sampled_from(VALUES[name]), max_size=25)
        )
    ),
    st.builds(IsNull, columns),
    st.builds(IsNotNull, columns),
)
predicates = st.recursive(
    conditions,
    lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)),
    max_leaves=4,
)


NUMBERS = ("n", "x", "price", "huge")
FAST = (*NUMBERS, "level", "id", "flag", "day")
COUNTABLE = (*FAST, "ip", "m", "z", "unset", "ts")
metrics = st.one_of(
    st.just(Metric(MetricFunction.COUNT)),
    st.builds(Metric, st.just(MetricFunction.COUNT), st.sampled_from(COUNTABLE)),
    st.builds(Metric, st.sampled_from([MetricFunction.MIN, MetricFunction.MAX]), st.sampled_from(FAST)),
    st.builds(Metric, st.sampled_from([MetricFunction.SUM, MetricFunction.AVG]), st.sampled_from(NUMBERS)),
)
groupings = st.one_of(
    st.none(),
    st.sampled_from([*FAST, "ip"]).map(Terms),
    st.sampled_from(["n", "x", "price"]).map(lambda name: Histogram(name, 50)),
    st.just(Histogram("day", timedelta(days=7))),
)
