"""Wrapping of plain text by columns: Chinese, Japanese and Korean characters take two each."""

from __future__ import annotations

import io
import re
import textwrap
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

WIDTH = 80  # columns

# One column each: Latin, Greek and Cyrillic letters, the signs that we print, arrows.
_NARROW = re.compile("[\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u21ff\u2260-\u2265]*")
_CONSOLE = Console(file=io.StringIO(), width=WIDTH, color_system=None)


def wrapped(text: str, first: str = "", rest: str = "", *, hyphens: bool = True) -> list[str]:
    """`text` in lines of WIDTH columns, `first` before the first of them and `rest` before the others.

    `hyphens`: whether a line may end behind one; names of things are then broken there.
    """
    if _NARROW.fullmatch(text):
        whole = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=hyphens)
        return whole or [first]
    # rich knows how wide each other character is.
    lines = Text(text).wrap(_CONSOLE, WIDTH - max(len(first), len(rest)))
    return [f"{rest if number else first}{line.plain.rstrip()}" for number, line in enumerate(lines)] or [first]


SCHEMA_VERSION = "1"


def print_json(value: dict[str, Any], console: Console) -> None:
    """`value` under the version of its format, indented."""
    raw = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **value})
    console.file.write(msgspec.json.format(raw, indent=2).decode() + "\n")
    console.file.flush()  # a failure to write is raised here, as rich does it for text


def command_lines(command: str, width: int) -> list[str]:
    """`command` in lines of at most `width` columns where its options permit, joined by backslashes for a shell."""
    lines: list[str] = []
    for word in re.split(r" (?=--)", command):
        if lines and len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def print_whole(text: str, console: Console, style: str = "") -> None:
    """Print `text` on one line of any length: a command broken over two lines cannot be pasted."""
    console.print(Text(text, style=style), soft_wrap=True)
