"""Split a text into parts of one format each: command output, results, logs, and prose between them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latdoctor.collectors.documents.prompts import machine_of_prompt
from latdoctor.collectors.documents.text_format import TextFormat
from latdoctor.collectors.logs import line_prefix

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTE = re.compile(r"(?:>\s?){1,5}")
_PROMPT = re.compile(r"(?:[\w.@:~/()\[\] -]{0,80})?(?:[$#] ?|(?<!\d)% )\S|```")
_BEFORE = re.compile(r"(?:[\w.@:~/()\[\] -]{0,80})?[$%] \S|```\w{0,20}\s*$")  # a prompt, or a fence
_NEAR = 3  # lines between a command and its output
_QUOTED_SHARE = 0.9  # of the non-empty lines, so that `>` is taken for quoting


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of one format; `format` is None for log lines and prose. `first_line` counts from 1.

    `command`: the last line before it with text, which may be the command that printed it. `is_cut`: it is the end of
    a text that ends inside a line.
    """

    format: TextFormat | None
    lines: tuple[str, ...]
    first_line: int
    command: str = ""
    is_cut: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def unwrapped(text: str) -> str:
    """A document without the prompt or the fence that a paste has before it, and the fence behind it."""
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        line = text[begin:end]
        if line.strip() and not _BEFORE.match(line):
            break
        begin = end + 1
    document = text[begin:]
    fenced = begin > 0 and document.rstrip().endswith("```")
    return document.rstrip().removesuffix("```") if fenced else document


def cleaned_lines(text: str) -> list[str]:
    """The lines of `text` without colours, carriage returns and, where all of it is quoted, quote marks."""
    lines = [_COLOUR.sub("", line).rstrip("\r") for line in text.split("\n")]
    filled = [line for line in lines if line.strip()]
    if filled and sum(line.startswith(">") for line in filled) >= _QUOTED_SHARE * len(filled):
        lines = [_QUOTE.sub("", line, count=1) if line.startswith(">") else line for line in lines]
    return lines


def split(lines: Sequence[str], formats: Sequence[TextFormat]) -> Iterator[Part]:
    """The parts in their order. Lines before the first, and those that interrupt a part, have no format."""
    current: TextFormat | None = None
    begun, machine = 0, ""
    for number, line in enumerate(lines):
        named = machine_of_prompt(line)
        if named and named != machine:  # what follows is of another machine, whatever it is
            if number > begun:
                yield from _part(current, lines, begun, number)
            current, begun, machine = None, number, named
        found = next((one for one in formats if one.begins.search(line)), None)
        if found is None and (current is None or not _ends(current, line)):
            continue
        if found is not None and found is current and (found.repeats or not _separates(lines, number)):
            continue  # a repeated heading within one part
        if number > begun:
            yield from _part(current, lines, begun, number)
        current, begun = found, number
    yield from _part(current, lines, begun, len(lines))


def _part(form: TextFormat | None, lines: Sequence[str], begun: int, end: int) -> Iterator[Part]:
    if begun == end:
        return
    command = next((line for line in reversed(lines[max(0, begun - _NEAR) : begun]) if line.strip()), "")
    part = Part(form, tuple(lines[begun:end]), begun + 1, command)
    if form is not None and form.confirms is not None and not form.confirms.search(part.text):
        part = Part(None, part.lines, part.first_line)
    yield part


def _separates(lines: Sequence[str], number: int) -> bool:
    """Whether a command or an empty line stands before line `number`: its heading begins a second output."""
    before = lines[number - 1] if number else ""
    return not before.strip() or _PROMPT.match(before) is not None


def _ends(current: TextFormat, line: str) -> bool:
    """Whether `line` cannot belong to a part of `current`: a prompt, a fence or a line of a log."""
    if line.startswith(("$ ", "```")):
        return True
    if not line[:1].strip() or (current.keeps and current.keeps.match(line)):
        return False
    parsed = line_prefix.parse(line[: line_prefix.MAX_LINE], 0.0)
    return parsed.writer == line_prefix.KERNEL or (parsed.time is not None and not current.contains_times)
