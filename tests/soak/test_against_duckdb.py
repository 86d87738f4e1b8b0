"""Random questions on random tables for a given time: every answer is DuckDB's."""

import random
import sys
import time
from itertools import count, islice

import pytest

from support.duckdb_oracle import aggregates, build_world, predicates, searches

QUESTIONS = 200


@pytest.mark.soak
def test_random_questions_have_the_answers_of_duckdb_for_a_while(tmp_path, soak_minutes, soak_report):
    first = random.SystemRandom().randrange(1 << 40)
    sys.stdout.write(f"\nrandom tables with seeds from {first}\n")
    deadline = time.monotonic() + soak_minutes * 60
    for seed in count(first):
        if time.monotonic() >= deadline:
            return
        world = build_world(tmp_path / str(seed), seed)
        soak_report["seeds"] += 1
        for questions in (predicates, searches, aggregates):
            for question in islice(questions(world, seed), QUESTIONS):
                difference = question.difference()
                soak_report["questions to DuckDB"] += 1
                if difference is not None:
                    soak_report["violations"] += 1
                    pytest.fail(f"seed {seed}: {difference}")
