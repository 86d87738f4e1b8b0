"""The command line: one small module per command, and how they speak to people and to programs."""

from indextables.cli.app import build_app, main

__all__ = ["build_app", "main"]
