"""Wrapping of plain text by columns: Chinese, Japanese and Korean characters take two each."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

WIDTH = 80  # columns

# One column each: Latin, Greek and Cyrillic letters, the signs that we print, arrows.
_NARROW = re.compile("[\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u21ff\u2260-\u2265]*")
# Blanks at which no line ends: within a moment, and between a number and its percent sign.
_GLUED = re.compile(r"(?<=\d) (?=%)|(?<=\d\d:\d\d) (?=UTC\b)|(?<=\d{4}-\d\d-\d\d) (?=\d\d:\d\d)")
_NO_BREAK = "\xa0"
_CONSOLE = Console(file=io.StringIO(), width=WIDTH, color_system=None)


def wrapped(text: str, first: str = "", rest: str = "", *, hyphens: bool = True) -> list[str]:
    """`text` in lines of WIDTH columns, `first` before the first of them and `rest` before the others.

    `hyphens`: whether a line may end behind one; names of things are then broken there.
    """
    if _NARROW.fullmatch(text):
        glued = _GLUED.sub(_NO_BREAK, text)
        whole = textwrap.wrap(glued, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=hyphens)
        return [line.replace(_NO_BREAK, " ") for line in whole] or [first]
    # rich knows how wide each other character is.
    lines = Text(text).wrap(_CONSOLE, WIDTH - max(len(first), len(rest)))
    return [f"{rest if number else first}{line.plain.rstrip()}" for number, line in enumerate(lines)] or [first]


def wrapped_parts(template: str, parts: Sequence[str], first: str, rest: str, most: int) -> list[str]:
    """The first of the parts, joined by commas in the braces of `template`, as many as fit in `most` lines."""
    for count in range(len(parts), 0, -1):
        lines = wrapped(template.format(", ".join(parts[:count])), first, rest)
        if len(lines) <= most:
            return lines
    return wrapped(template.format(parts[0]), first, rest)[:most] if parts else []


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
