"""Tables of `nsys stats` and results of `nsys analyze` as printed by default: columns under a line of dashes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nsight import SHARES, SIGNALS
from latdoctor.collectors.nsight.analysis_rules import RULES, matches
from latdoctor.collectors.nsight.printed_tables import printed
from latdoctor.collectors.nsight.table_sums import TableSums
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Evidence, Reading, Subject
from latdoctor.units import format_value

MATCHES = "trace.rule_matches"
_RULES = "|".join(sorted(RULES))


def read(section: Section) -> Evidence:
    """The sums and rule results in the text. Raises ValueError where there are none."""
    subject = f"trace/{file_name(section)}"
    try:
        tables = printed(section.text, section.source).tables
    except SourceError as error:
        raise ValueError(error.what) from error
    found = [TableSums(tables, subject, section.artifact).evidence()] if tables else []
    results = tuple(_results(section, subject))
    if results:
        found.append(Evidence((Subject(subject),), results))
    if not found:
        raise ValueError("it has no table with rows")
    return Evidence.merge(found)


def _results(section: Section, subject: str) -> Iterator[Reading]:
    for one in matches(section.text):
        longest = "" if one.longest is None else f"the longest {format_value(one.longest, 'time')}"
        labels = (("rule", one.rule),)
        yield Reading(MATCHES, subject, float(one.count), section.origin(place=longest), labels=labels)


FORMAT = TextFormat(
    name="nsys-text",
    title="nsys stats",
    begins=re.compile(
        rf"^\s*(?:\*\* .{{3,120}} \((?:\w{{2,40}}_(?:sum|trace)|\w{{3,40}}(?:sum|trace)|{_RULES})\):"
        r"|Processing \[[^\]]{1,400}\.sqlite\] with \["
        r"|(?:CUDA (?:API|Kernel|Memory Operation)|Operating System Runtime API|NVTX .{1,40}) Statistics.{0,20}:"
        r"|Time ?\(%\)  +Total Time.{0,200}(?:Name|Operation|Range)\s*$)"
    ),
    read=read,
    provides=frozenset((*SIGNALS, *SHARES, MATCHES)),
    confirms=re.compile(r"^\s*-{2,}(?:\s+-{2,}){2,}\s*$|no problems detected", re.MULTILINE),
    repeats=True,
)
