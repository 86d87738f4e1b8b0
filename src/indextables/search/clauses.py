"""How clauses that stand side by side become one node: operators, signs, and what nothing at all means."""

from collections.abc import Iterable, Sequence
from enum import Enum, auto

import msgspec

from indextables.search.nodes import Boolean, Place, QueryNode


class Joiner(Enum):
    """What stands between two clauses."""

    AND = "AND"
    OR = "OR"


class Sign(Enum):
    """What stands before a clause: nothing, +, or - and NOT."""

    NONE = auto()
    PLUS = auto()
    MINUS = auto()


class Clause(msgspec.Struct, frozen=True):
    """One clause; `joiner` is the operator to its left, None if there is none, and `place` that of its sign."""

    node: QueryNode
    sign: Sign
    joiner: Joiner | None
    place: Place

    @property
    def as_node(self) -> QueryNode:
        """The clause by itself."""
        return Boolean(must_not=(self.node,)) if self.sign is Sign.MINUS else self.node


def combine(clauses: Sequence[Clause], default_operator: Joiner) -> QueryNode:
    """The node of a list of clauses.

    AND binds tighter than OR, and clauses that nothing joins are joined by the default operator. Where that is
    OR, signs have their own meaning: + is required, - and NOT exclude; next to a written OR, however, an
    excluded clause is an alternative of its own. Raises InvalidQueryError for + next to a written OR.
    """
    alternatives = list(_conjunctions(clauses, default_operator))
    if len(alternatives) == 1:
        return _conjunction(alternatives[0])
    must: list[QueryNode] = []
    should: list[QueryNode] = []
    must_not: list[QueryNode] = []
    for index, alternative in enumerate(alternatives):
        first = alternative[0]
        is_signed = len(alternative) == 1 and first.sign is not Sign.NONE
        if not is_signed:
            should.append(_conjunction(alternative))
        elif _is_beside_or(alternatives, index):
            _refuse_plus(first)
            should.append(first.as_node)
        else:
            (must if first.sign is Sign.PLUS else must_not).append(first.node)
    return Boolean(tuple(must), tuple(should), tuple(must_not))


def _conjunctions(clauses: Sequence[Clause], default_operator: Joiner) -> Iterable[list[Clause]]:
    """The clauses in runs that AND holds together."""
    run: list[Clause] = []
    for clause in clauses:
        if run and (clause.joiner or default_operator) is Joiner.OR:
            yield run
            run = []
        run.append(clause)
    yield run


def _conjunction(run: Sequence[Clause]) -> QueryNode:
    if len(run) == 1:
        return run[0].as_node
    must = tuple(clause.node for clause in run if clause.sign is not Sign.MINUS)
    must_not = tuple(clause.node for clause in run if clause.sign is Sign.MINUS)
    return Boolean(must=must, must_not=must_not)


def _is_beside_or(alternatives: Sequence[Sequence[Clause]], index: int) -> bool:
    neighbours = alternatives[index : index + 2]
    return any(alternative[0].joiner is Joiner.OR for alternative in neighbours)


def _refuse_plus(clause: Clause) -> None:
    if clause.sign is Sign.PLUS:
        raise clause.place.error("+ makes a clause required, and OR makes it optional; leave one of them out")
