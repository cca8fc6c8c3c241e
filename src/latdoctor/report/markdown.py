"""The diagnosis as Markdown, for an incident channel. Untrusted text is escaped: it cannot format or link."""

from __future__ import annotations

import re
from collections.abc import Iterable

from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.report import comparison, diagnosis_text
from latdoctor.report.answer import answer
from latdoctor.report.diagnosis_text import gap_lines, unexplained
from latdoctor.units import percent

# The last: `:fire:`, but no time of day. Its colon is not escaped: GitHub and GitLab make their emoji of the text once
# Markdown is done with it, when no backslash is left. A comment parts the text for them, and shows nothing.
_SPECIAL = re.compile(
    r"([\\`*_{}\[\]<>()#+!|~&@$]|:(?=//)|(?<=www)\.)"
    r"|:(?=(?:100|1234|8ball|[123](?:st|nd|rd)_place_medal|[a-z_+-][a-z0-9_+-]{0,60}):)",
    re.IGNORECASE,
)
_PARTED = ":<!-- -->"


def render(diagnosis: Diagnosis) -> str:
    """The whole diagnosis as one Markdown document."""
    return "\n".join(_lines(diagnosis)).rstrip() + "\n"


def escape(text: str) -> str:
    """`text` without effect in Markdown: no format, formula, emoji or mention."""
    return _SPECIAL.sub(lambda found: f"\\{found[1]}" if found[1] else _PARTED, text)


def _lines(diagnosis: Diagnosis) -> Iterable[str]:
    """The answer as on the terminal, then the evidence behind it."""
    first, *rest = answer(diagnosis)
    yield f"## {escape(first.text)}"
    for shown in rest:
        escaped = escape(shown.text.strip())
        yield from ([f"* {escaped}"] if shown.text.startswith(" " * 6) else ["", escaped])
    if line := diagnosis_text.site_line(diagnosis):
        yield ""
        yield escape(line)
    for cause in diagnosis_text.shown_causes(diagnosis, every=False):
        yield from _cause(cause, diagnosis)
    yield from _section("Why not healthy", diagnosis.verdict.reasons if _doubtful(diagnosis) else ())
    yield from _section("Symptoms", [f"{line.kind}: {line.message}" for line in diagnosis_text.symptoms(diagnosis)])
    yield from _section("Findings that no named cause explains", unexplained(diagnosis))
    yield from ("", "### Tiers", "", "| tier | checks | not evaluated |", "|---|---|---|")
    for tier in diagnosis_text.tier_lines(diagnosis):
        yield f"| {escape(tier.heading)} | {escape(tier.counts)} | {escape('; '.join(tier.not_evaluated[:1]))} |"
    yield from _section("Not measured", gap_lines(diagnosis, every=False))
    if diagnosis.against:
        title = escape(f"{diagnosis.against.name}, against {diagnosis.against.than}")
        yield from _section(title, comparison.of_against(diagnosis.against))
    yield from _section("Next", diagnosis_text.next_steps(diagnosis))


def _doubtful(diagnosis: Diagnosis) -> bool:
    return diagnosis.verdict.level == "inconclusive"


def _cause(cause: RankedCause, diagnosis: Diagnosis) -> Iterable[str]:
    yield ""
    yield f"### {escape(cause.title)} ({percent(cause.probability)}, {cause.confidence})"
    yield ""
    yield escape(diagnosis_text.facts_of(cause))
    yield ""
    for title, message in diagnosis_text.advice(cause, diagnosis):
        yield f"* **{title}** {escape(message)}"
    for line in diagnosis_text.evidence_lines(cause, diagnosis):
        yield f"* **{line.kind}** {escape(line.message)}"
        for detail in line.details:
            yield f"  * {escape(detail)}"
    yield from ("", "| points | why |", "|---:|---|")
    for points, message in diagnosis_text.score_rows(cause):
        yield f"| {points} | {escape(message)} |"


def _section(title: str, lines: Iterable[str]) -> Iterable[str]:
    listed = list(lines)
    if listed:
        yield from ("", f"### {title}", "")
        yield from (f"* {escape(line)}" for line in listed)
