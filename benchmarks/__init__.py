"""Benchmarks: our log, state, splits and search against their peers, on the same generated data, in one run."""
