"""Markdown: what a person writes about errors, and the log lines that are quoted in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latdoctor.collectors.logs import line_prefix
from latdoctor.collectors.logs.line_prefix import KERNEL

_HEADING = re.compile(r"#{1,6} [^\s#]")
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_LIST_OR_FENCE = re.compile(r"\s{0,3}(?:[-*+] |\d{1,2}\. |```|~~~|$)")
_FRAME = re.compile(r"\s{1,12}File \"[^\"]{1,400}\", line \d|Traceback \(most recent call last\)")


def is_markdown(lines: Sequence[str]) -> bool:
    """Whether the text is Markdown: a heading before an empty line, a list or a fence. A shell's `# ` is none."""
    return any(
        _HEADING.match(line) and _LIST_OR_FENCE.match(following)
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if not line.startswith("# ") or line is lines[0]
    )


def without_prose(lines: Sequence[str]) -> list[str]:
    """The lines with empty ones in place of prose. Left are lines with a log's prefix, and fences with such a line or
    a traceback in them.
    """
    kept: list[str] = []
    for fenced, block in _blocks(lines):
        quoted = fenced and any(_is_dated(line) or _FRAME.match(line) for line in block)
        kept += [line if quoted or _is_dated(line) else "" for line in block]
    return kept


def _blocks(lines: Sequence[str]) -> Iterator[tuple[bool, list[str]]]:
    """The lines in their order, those between two fences together."""
    fenced, block = False, list[str]()
    for line in lines:
        block.append(line)
        if _FENCE.match(line):
            yield fenced, block
            fenced, block = not fenced, []
    yield fenced, block


def _is_dated(line: str) -> bool:
    parsed = line_prefix.parse(line[: line_prefix.MAX_LINE], 0.0)
    return parsed.time is not None or parsed.writer == KERNEL
