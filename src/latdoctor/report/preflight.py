"""Which sources can be read here: on one screen, as a table with what each of them shows, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.report.fit_to_screen import Line, Rank, print_lines, sentence_lines
from latdoctor.report.fit_to_screen import fitted as fit
from latdoctor.report.text_utils import WIDTH, command_lines, print_json, wrapped
from latdoctor.sanitize import clean, counted

LIMIT_LINE = "       LIMIT is the P99 that you promise, such as 500ms"
_MARK = {Availability.YES: "+", Availability.PARTLY: "~", Availability.NO: "-", Availability.IF_GIVEN: " "}
_STYLE = {Availability.YES: "green", Availability.PARTLY: "yellow", Availability.NO: "red"}
_UNBROKEN = "\u00a0"  # keeps an option and its value on one line
_HERE = 12  # sources of this machine on the default screen


def print_preflight(rows: Sequence[SourceAvailability], console: Console, *, as_json: bool, verbose: bool) -> None:
    """The sources on one screen; with `verbose` what each of them shows and how to get it."""
    if as_json:
        print_json({"sources": [asdict(row) for row in rows], "next": next_command(rows)}, console)
    elif verbose:
        _print_table(rows, console)
    else:
        print_lines(screen(rows), console)


def hidden(rows: Sequence[SourceAvailability]) -> list[SourceAvailability]:
    """The sources of this machine that cannot be read in full."""
    return [row for row in rows if row.status in (Availability.NO, Availability.PARTLY)]


def next_command(rows: Sequence[SourceAvailability]) -> str:
    """The command that diagnoses the first service that was found."""
    return next((row.command for row in rows if row.command), "latdoctor diagnose")


def screen(rows: Sequence[SourceAvailability]) -> tuple[Line, ...]:
    """At most 24 lines of 80 columns."""
    here = [row for row in rows if row.status != Availability.IF_GIVEN]
    command = next_command(rows)
    listed = [line for row in here[:_HERE] for line in _source(row, command)]
    if len(here) > _HERE:
        listed.append(Line(f" and {len(here) - _HERE} more: -v"))
    options = ", ".join(dict.fromkeys(row.option.replace(" ", _UNBROKEN) for row in rows if row.option))
    wrapped_options = wrapped(options, " If given  ", " " * 11, hyphens=False)
    given = [Line(line.replace(_UNBROKEN, " "), rank=Rank.NOT_SEEN) for line in wrapped_options]
    end = command_line(command)
    if " LIMIT" in command:
        end.append(Line(LIMIT_LINE, "dim"))
    end.append(Line(" -v what each source shows, and how to get it · -o json", "dim"))
    return fit([_headline(rows), listed, given if options else [], end])


def _headline(rows: Sequence[SourceAvailability]) -> list[Line]:
    readable = counted(sum(row.status == Availability.YES for row in rows), "source")
    lacking = hidden(rows)
    if not lacking:
        return [Line(f"READY  {readable} of this machine can be read, and none is missing", "bold green")]
    names = ", ".join(clean(row.what, 60) for row in lacking)
    text = f"IN PART  {readable} can be read here; not, or not in full: {names}"
    lines = sentence_lines(text, "", "  ")
    return [Line(line, "bold yellow", continued=number > 0) for number, line in enumerate(lines)]


def command_line(command: str) -> list[Line]:
    """The next command, broken before an option where it is longer than a line."""
    lines = command_lines(clean(command), WIDTH - 9)
    return [Line(f"{'         ' if number else ' Next  '}{line}", "bold") for number, line in enumerate(lines)]


def _source(row: SourceAvailability, command: str) -> Iterator[Line]:
    """What it is with its mark, and below what would help, or the command that reads it if that is not `command`."""
    style = _STYLE.get(row.status, "")
    text = f"{clean(row.what, 120)}: {clean(row.detail, 400)}" if row.detail else clean(row.what, 200)
    for number, line in enumerate(sentence_lines(text, f" {_MARK[row.status]} ", "   ")):
        yield Line(line, "" if number else style, continued=number > 0)
    if row.command and row.command != command:
        yield from (Line(f"     {line}", "dim", Rank.CHANGE) for line in command_lines(clean(row.command), WIDTH - 9))
    if row.next_step:
        steps = sentence_lines(clean(row.next_step), "     ", "     ")
        yield from (Line(line, "dim", Rank.EVIDENCE, continued=number > 0) for number, line in enumerate(steps))


def _print_table(rows: Sequence[SourceAvailability], console: Console) -> None:
    table = Table("", "what", "readable", "detail", box=None, pad_edge=False, expand=True)
    for row in rows:
        detail = f"{row.detail} — {row.next_step}" if row.next_step else row.detail
        table.add_row(*(Text(clean(text)) for text in (_MARK[row.status], row.what, row.status.value, detail)))
    console.print(table)
    names = ", ".join(row.what for row in hidden(rows))
    console.print(Text(f"not read in full: {clean(names)}" if names else "everything can be read"))
    console.print(Text(f"Next: {clean(next_command(rows))}"), soft_wrap=True)
