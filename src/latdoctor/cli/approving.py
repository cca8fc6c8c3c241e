"""Whether somebody at the terminal wants it done."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

_QUESTION = "Change it now? (yes/no)"


def held(say: Callable[[str], None]) -> str:
    """Why it waits for a human, who has just been shown the plan; empty where one said yes."""
    if not sys.stdin.isatty():
        return "nobody can be asked here"
    while True:
        try:
            said: str = typer.prompt(_QUESTION, default="no", err=True)
        except typer.Abort:  # Ctrl-C or the end of the input
            say("")
            return "nobody answered"
        word = said.strip().lower()
        if word in ("y", "yes"):
            return ""
        if word in ("n", "no"):
            return "the answer was no"
        say("yes or no?")
