"""Queries that ask for nothing but aggregates of one table, which the log may answer."""

from typing import Final

from sqlglot import exp

from indextables.spark.loaded import Aggregate

_CLAUSES: Final = frozenset({"expressions", "from", "from_"})
_TABLE_PARTS: Final = frozenset({"this", "db", "catalog", "alias", "version"})


def plain_aggregates(tree: exp.Expr) -> list[Aggregate] | None:
    """The aggregates of `SELECT min(id), max(id), count(*) FROM t`; None for any other query."""
    if not isinstance(tree, exp.Select) or not _given(tree) <= _CLAUSES:
        return None
    source = tree.find(exp.From)
    table = None if source is None else source.this
    if not isinstance(table, exp.Table) or not _given(table) <= _TABLE_PARTS:
        return None
    if table.args.get("alias") is not None and table.args["alias"].args.get("columns"):
        return None
    found = [_aggregate(each.unalias(), table.alias_or_name) for each in tree.expressions]
    known = [each for each in found if each is not None]
    return known if found and len(known) == len(found) else None


def _given(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value}


def _aggregate(node: exp.Expr, table: str) -> Aggregate | None:
    operand = node.this
    if isinstance(node, exp.Count) and not node.expressions:
        is_all = isinstance(operand, exp.Star) or (isinstance(operand, exp.Literal) and operand.name == "1")
        return Aggregate("count") if is_all else None
    if not isinstance(node, exp.Min | exp.Max) or node.expressions or not isinstance(operand, exp.Column):
        return None
    if operand.args.get("db") or operand.table.lower() not in ("", table.lower()):
        return None
    return Aggregate("min" if isinstance(node, exp.Min) else "max", operand.name)
