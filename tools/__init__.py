"""Generators of documentation pages; not part of the wheel."""
