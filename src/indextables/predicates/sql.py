"""The SQL text of a predicate, read into a tree.

    predicate  := conjunction (OR conjunction)*
    conjunction:= negation (AND negation)*
    negation   := NOT* condition
    condition  := operand comparison? | ( predicate ) comparison?

sqlglot cuts the text as Spark does it; the grammar is the part of SQL that minima and maxima can answer.
"""

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import Token, TokenType

from indextables.errors import InvalidPredicateError
from indextables.predicates.operands import (
    TEXT_TOKENS,
    ColumnOperand,
    LiteralOperand,
    Operand,
    as_column,
    parse_operand,
)
from indextables.predicates.tokens import TokenStream
from indextables.predicates.tree import (
    MAX_DEPTH,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    Value,
    like,
)

OPERATORS = {
    TokenType.EQ: Operator.EQ,
    TokenType.NEQ: Operator.NE,
    TokenType.LT: Operator.LT,
    TokenType.LTE: Operator.LE,
    TokenType.GT: Operator.GT,
    TokenType.GTE: Operator.GE,
}

FOLD: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}

FOLDED_KINDS = (str, int | float | Decimal)


def read_sql(text: str) -> Predicate:
    """What `parse_predicate` promises."""
    return _Parser(TokenStream(text)).parse()


class _Parser:
    __slots__ = ("depth", "tokens")

    def __init__(self, tokens: TokenStream) -> None:
        self.tokens = tokens
        self.depth = 0

    def parse(self) -> Predicate:
        predicate = self.as_predicate(self.disjunction())
        if self.tokens.current is not None:
            self.tokens.fail("expected AND, OR or the end")
        return predicate

    # An operand without a comparison may still become one, as in (x) = 5. So each rule returns what it found,
    # and turns it into a predicate only where it must be one.

    def disjunction(self) -> Predicate | Operand:
        first = self.conjunction()
        if not self.tokens.at(TokenType.OR):
            return first
        operands = [self.as_predicate(first)]
        while self.tokens.take_if(TokenType.OR):
            operands.append(self.as_predicate(self.conjunction()))
        return Or(*operands)

    def conjunction(self) -> Predicate | Operand:
        first = self.negation()
        if not self.tokens.at(TokenType.AND, TokenType.DAMP):
            return first
        operands = [self.as_predicate(first)]
        while self.tokens.take_if(TokenType.AND, TokenType.DAMP):
            operands.append(self.as_predicate(self.negation()))
        return And(*operands)

    def negation(self) -> Predicate | Operand:
        count = 0
        while self.tokens.take_if(TokenType.NOT):
            count += 1
        found = self.condition()
        if not count:
            return found
        predicate = self.as_predicate(found)
        return Not(predicate) if count % 2 else predicate

    def condition(self) -> Predicate | Operand:
        found = self.parenthesised() if self.tokens.at(TokenType.L_PAREN) else parse_operand(self.tokens)
        return found if isinstance(found, Predicate) else self.comparison(found)

    def parenthesised(self) -> Predicate | Operand:
        opening = self.tokens.take()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.tokens.fail(f"nested more than {MAX_DEPTH} levels deep", opening)
        found = self.disjunction()
        self.tokens.expect(TokenType.R_PAREN, ")")
        self.depth -= 1
        return found

    def comparison(self, left: Operand) -> Predicate | Operand:
        token = self.tokens.current
        if token is None:
            return left
        if token.token_type in OPERATORS:
            self.tokens.take()
            return self.compare(left, OPERATORS[token.token_type], self.operand(), token)
        match token.token_type:
            case TokenType.NULLSAFE_EQ:
                self.tokens.take()
                return self.null_safe(left, self.operand(), token)
            case TokenType.IS:
                self.tokens.take()
                return self.is_test(self.column(left))
            case TokenType.NOT:
                self.tokens.take()
                return Not(self.test(self.column(left)))
            case TokenType.IN | TokenType.BETWEEN | TokenType.LIKE:
                return self.test(self.column(left))
        return left

    def compare(self, left: Operand, how: Operator, right: Operand, token: Token) -> Predicate:
        if isinstance(right, ColumnOperand):
            if isinstance(left, ColumnOperand):
                self.tokens.fail("columns cannot be compared with columns", right.token)
            return Comparison(right.name, how.mirrored, left.value)
        column = as_column(self.tokens, left)
        if column is not None:
            return Comparison(column.name, how, right.value)
        assert isinstance(left, LiteralOperand)
        return self.fold(left.value, how, right.value, token)

    def null_safe(self, left: Operand, right: Operand, token: Token) -> Predicate:
        """<=> is never unknown: two nulls are equal, and a null differs from every value."""
        column, other = (right, left) if isinstance(right, ColumnOperand) else (self.column(left), right)
        if isinstance(other, ColumnOperand):
            self.tokens.fail("columns cannot be compared with columns", token)
        if other.value is None:
            return IsNull(column.name)
        return And(IsNotNull(column.name), Comparison(column.name, Operator.EQ, other.value))

    def is_test(self, column: ColumnOperand) -> Predicate:
        negated = self.tokens.take_if(TokenType.NOT) is not None
        if self.tokens.take_if(TokenType.NULL):
            return IsNotNull(column.name) if negated else IsNull(column.name)
        if not self.tokens.at(TokenType.TRUE, TokenType.FALSE):
            self.tokens.fail("expected NULL, TRUE or FALSE")
        value = self.tokens.take().token_type is TokenType.TRUE
        test = And(IsNotNull(column.name), Comparison(column.name, Operator.EQ, value))
        return Not(test) if negated else test

    def test(self, column: ColumnOperand) -> Predicate:
        if self.tokens.take_if(TokenType.IN):
            return In(column.name, self.values())
        if self.tokens.take_if(TokenType.BETWEEN):
            low = self.literal()
            self.tokens.expect(TokenType.AND, "AND")
            lower = Comparison(column.name, Operator.GE, low)
            return And(lower, Comparison(column.name, Operator.LE, self.literal()))
        self.tokens.expect(TokenType.LIKE, "IN, BETWEEN or LIKE")
        return self.like(column)

    def like(self, column: ColumnOperand) -> Predicate:
        token = self.tokens.current
        if not self.tokens.at(*TEXT_TOKENS):
            self.tokens.fail("expected a pattern in quotes")
        pattern = self.literal()
        assert isinstance(pattern, str)
        try:
            return like(column.name, pattern)
        except InvalidPredicateError as error:
            self.tokens.fail(str(error), token)

    def values(self) -> tuple[Value | None, ...]:
        self.tokens.expect(TokenType.L_PAREN, "(")
        values = [self.literal()]
        while self.tokens.take_if(TokenType.COMMA):
            values.append(self.literal())
        self.tokens.expect(TokenType.R_PAREN, ", or )")
        return tuple(values)

    def operand(self) -> Operand:
        if not self.tokens.at(TokenType.L_PAREN):
            return parse_operand(self.tokens)
        opening = self.tokens.current
        found = self.parenthesised()
        if isinstance(found, Predicate):
            self.tokens.fail("conditions cannot be compared with each other", opening)
        return found

    def literal(self) -> Value | None:
        operand = self.operand()
        if isinstance(operand, ColumnOperand):
            self.tokens.fail("expected a literal", operand.token)
        return operand.value

    def column(self, operand: Operand) -> ColumnOperand:
        column = as_column(self.tokens, operand)
        if column is None:
            self.tokens.fail("expected a column", operand.token)
        return column

    def as_predicate(self, found: Predicate | Operand) -> Predicate:
        if isinstance(found, Predicate):
            return found
        if isinstance(found, ColumnOperand):
            return Comparison(found.name, Operator.EQ, True)
        if not isinstance(found.value, bool):
            self.tokens.fail("expected a condition", found.token)
        return AlwaysTrue() if found.value else AlwaysFalse()

    def fold(self, left: Value | None, how: Operator, right: Value | None, token: Token) -> Predicate:
        """1 = 1, as generated SQL has it."""
        same_kind = any(isinstance(left, kind) and isinstance(right, kind) for kind in FOLDED_KINDS)
        if not same_kind:
            self.tokens.fail("expected a column on one side", token)
        return AlwaysTrue() if FOLD[how](left, right) else AlwaysFalse()
