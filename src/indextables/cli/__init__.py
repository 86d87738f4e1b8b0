"""The command line: one small module per command, and how they speak to people and to programs."""

from indextables.cli.app import app, main

__all__ = ["app", "main"]
