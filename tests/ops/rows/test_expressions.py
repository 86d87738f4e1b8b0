"""SQL expressions for new values: what they may say, the types of their values, and the errors."""

import pyarrow as pa
import pytest

from indextables import IndexTable, expr
from indextables.errors import InvalidExpressionError, InvalidValueError
from indextables.ops.expressions import Evaluator, Expression

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "Price": [1.0, 2.0, None],
        "name": ["a", "b", None],
        "Point": pa.array([{"X": 1, "y": {"Z": 7}}, {"X": 2, "y": None}, None]),
    }
)
OTHER = pa.table({"id": [10, 20, 30], "price": [5.0, None, 7.0]})


def value(sql: str, **relations: pa.Table) -> list[object]:
    rows = relations or {"target": ROWS, "source": OTHER}
    evaluator = Evaluator({name: each.schema for name, each in rows.items()}, {"x": Expression(sql)})
    [column] = evaluator.evaluate(rows).values()
    assert column.type == evaluator.type_of("x")
    found: list[object] = column.to_pylist()
    return found


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("source.price * 2", [10.0, None, 14.0]),
        ("target.PRICE + Source.Id", [11.0, 22.0, None]),
        ("target.`Price`", [1.0, 2.0, None]),
        ("upper(name) || '-`X`'", ["A-`X`", "B-`X`", None]),
        ("CASE WHEN target.id = 1 THEN 'one' ELSE name END", ["one", "b", None]),
        ("point.x", [1, 2, None]),
        ("`Point`.`Y`.`Z`", [7, None, None]),
        ("coalesce(name, 'none') -- a comment", ["a", "b", "none"]),
        ("target.id IN (1, 3)", [True, False, True]),
        ("NULL", [None, None, None]),
        ("'it''s'", ["it's"] * 3),
    ],
)
def test_values_of_expressions(sql, expected):
    assert value(sql) == expected


def test_one_relation_needs_no_name_and_may_be_empty():
    assert value("price", target=ROWS) == [1.0, 2.0, None]
    assert value("target.price", target=ROWS) == [1.0, 2.0, None]
    assert value("price", target=ROWS.slice(0, 0)) == []


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("nope + 1", "No field named nope"),
        ("target.nope", "No field named target.nope"),
        ("id", "Ambiguous reference to unqualified field id"),
        ("name + 1", "Cannot coerce arithmetic expression"),
        ("1 +", "Expected: an expression"),
        ("1), (2", "several values"),
        ("max(source.price)", "more than one row at a time"),
        ("row_number() OVER ()", "more than one row at a time"),
        ("sum(source.id) OVER ()", "more than one row at a time"),
        ("unnest([1, 2])", "more than one row at a time"),
        ("(SELECT max(id) FROM source)", "not found"),
        ("source.id IN (SELECT id FROM target)", "not found"),
        ("no_such_function(1)", "no_such_function"),
    ],
)
def test_expressions_that_are_no_value_of_a_row(sql, reason):
    with pytest.raises(InvalidExpressionError, match=reason) as caught:
        value(sql)
    assert sql in str(caught.value)
    assert "~row" not in str(caught.value)


def test_errors_of_rows_name_the_expression():
    relations = {"target": ROWS}
    evaluator = Evaluator({"target": ROWS.schema}, {"a": Expression("id"), "b": Expression("1 / (id - 2)")})
    with pytest.raises(
        InvalidExpressionError, match=r"b: the expression '1 / \(id - 2\)' fails.*Divide by zero"
    ):
        evaluator.evaluate(relations)


@pytest.mark.parametrize("text", ["", "  ", 7, None])
def test_expr_takes_a_text(text):
    with pytest.raises(InvalidExpressionError, match="an expression is a text"):
        expr(text)


@pytest.fixture
def table(tmp_path) -> IndexTable:
    schema = pa.schema(
        [
            ("id", pa.int32()),
            pa.field("price", pa.float64(), nullable=False),
            ("body", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    table = IndexTable.create(str(tmp_path / "t"), schema, text=["body"])
    rows = {"id": [1, 2, 3], "price": [1.5, 2.0, 3.0], "body": ["x", None, "y"], "at": [0, 1, None]}
    table.append(pa.table(rows, schema=schema))
    return table


def test_updates_with_expressions_over_the_old_row(table):
    table.update({"price": expr("price * 2"), "id": expr("price"), "body": "set"}, where="id >= 2")
    assert sorted(table.to_arrow(columns=["id", "price"]).to_pylist(), key=repr) == [
        {"id": 1, "price": 1.5},
        {"id": 2, "price": 4.0},
        {"id": 3, "price": 6.0},
    ]
    assert table.count("set") == 2


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"body": "id"}, "column 'body' is string, and 'id' is int32; convert it"),
        ({"id": "body"}, "column 'id' is int32, and 'body' is string"),
        ({"at": "id"}, "column 'at'"),
        ({"price": "nope"}, "price: the expression 'nope' fails"),
    ],
)
def test_expressions_of_the_wrong_type_are_refused_before_anything_is_read(table, values, reason):
    with pytest.raises(InvalidExpressionError, match=reason):
        table.update({name: expr(sql) for name, sql in values.items()}, where="true")
    assert table.refresh().version == 1


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"id": "price"}, "column 'id' is int32 and cannot hold a value of 'price'"),
        ({"id": "id * 4000000000"}, "column 'id' is int32 and cannot hold"),
        ({"price": "CASE WHEN id = 1 THEN price END"}, "column 'price' cannot be null"),
    ],
)
def test_values_that_do_not_fit_their_column_change_nothing(table, values, reason):
    with pytest.raises(InvalidValueError, match=reason):
        table.update({name: expr(sql) for name, sql in values.items()}, where="true")
    assert table.refresh().version == 1
