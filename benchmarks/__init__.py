"""Benchmarks: our log, state, splits and search against peers, on the same generated data, in one run."""
