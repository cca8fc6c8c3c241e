"""Messages on stderr: wrapped between words on a terminal, and one line each for a program that reads them."""

from __future__ import annotations

import sys
import textwrap

import typer

_NARROWEST = 20  # columns


def say(text: str, *, hang: int = 2) -> None:
    """Prints `text`, one line of clean text; what does not fit into the terminal's width goes on `hang` columns in.

    A long word, such as a path, is not broken: it is copied whole.
    """
    if sys.stderr.isatty():
        text = "\n".join(
            textwrap.wrap(text, _width(), subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
        )
    typer.echo(text, err=True)


def _width() -> int:
    # Imported here: an error must be told without loading what draws tables, where it is told to a program.
    from latdoctor.cli.screen import notice_console

    return max(_NARROWEST, notice_console().width)
