"""Random predicates, searches and aggregations on random tables of all types have DuckDB's answers."""

from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from support.duckdb_aggregates import groupings
from support.duckdb_oracle import Question, World, aggregates, build_world, predicates, searches

SEEDS = range(4)
QUESTIONS = 60


@pytest.fixture(scope="module", params=SEEDS, ids="world {}".format)
def world(request, tmp_path_factory) -> World:
    return build_world(tmp_path_factory.mktemp("world") / "table", request.param)


@pytest.mark.parametrize("questions", [predicates, searches, aggregates, groupings])
def test_random_questions_have_the_answers_of_duckdb(
    world: World, questions: Callable[[World, int], Iterator[Question]]
) -> None:
    differences = [question.difference() for question in islice(questions(world, seed=1), QUESTIONS)]
    assert not "\n".join(filter(None, differences))
