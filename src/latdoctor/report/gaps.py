"""What could not be seen, and what to do about it: the gaps of a diagnosis in as few lines as say it."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.diagnosis.result import Diagnosis

_LISTED = 4  # of the things that one gap says the same of


def gap_lines(diagnosis: Diagnosis, *, every: bool) -> tuple[str, ...]:
    """What could not be seen and what to do about it, the gaps that left most checks unevaluated first.

    One line for several subjects of which the same is said, and for several things with the same hint.
    """
    reasons = [check.reason for check in diagnosis.checks if check.status == "not-evaluated"]
    hidden = {gap: sum(gap.reason in reason for reason in reasons) for gap in diagnosis.gaps}
    subjects: dict[tuple[str, str, str], list[str]] = {}
    for gap in sorted(diagnosis.gaps, key=lambda gap: -hidden[gap]):
        said = gap.reason.removeprefix(f"{gap.subject}: ")
        about = subjects.setdefault((gap.source, said, gap.next_step), [])
        if gap.subject and gap.subject not in said:
            about.append(gap.subject)
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for (source, said, next_step), about in subjects.items():
        head, colon, tail = said.rpartition(": ")
        alike.setdefault((source, _cut(about, ", ", every=every), head + colon, next_step), []).append(tail)
    return tuple(_gap_line(*key, _cut(tails, "; ", every=every)) for key, tails in alike.items())


def _cut(names: Sequence[str], separator: str, *, every: bool) -> str:
    shown = names if every else names[:_LISTED]
    return separator.join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _gap_line(source: str, about: str, head: str, next_step: str, said: str) -> str:
    reader = "" if source == "derived" else f"{source.replace('_', ' ')}: "
    subject = f"{about}: " if about else ""
    return f"{reader}{subject}{head}{said}" + (f" — {next_step}" if next_step else "")
