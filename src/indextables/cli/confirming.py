"""Asking before something goes that does not come back."""

import sys
from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is deleted.")]


def confirm(question: str, *, is_agreed: bool) -> None:
    """Return if the user agrees, or has done so already. Where nobody can be asked, that is wrong use.

    Raises typer.BadParameter and typer.Abort.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; add --yes if you mean it", param_hint="'--yes'")
    typer.confirm(question, abort=True, err=True)
