"""Searches that found what another finding judges: a log with a CUDA error is not clear of CUDA errors.

A finding counts some events of a signal and leaves others to neighbouring findings (an uncorrectable memory error is
no failed call of the program). Where it fails although events of that signal were found, it is not clear; it does not
apply, and its reason names the findings that fired for them. Its weight in the ranking stays: what it counts was
searched for and not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from latdoctor.conditions.ast import Comparison, CountTerm, comparisons
from latdoctor.conditions.evaluator import FAILS, Facts, evaluate, events_of
from latdoctor.diagnosis.codes import CheckStatus, ReasonCode
from latdoctor.diagnosis.result import Check, Reason
from latdoctor.diagnosis.rule_schema import Finding
from latdoctor.evidence.model import Event

_KINDS_SHOWN = 3
_NAMED = ("name", "code", "kind", "severity")  # fields that say what an event reports


def with_covered(checks: Sequence[Check], findings: Mapping[str, Finding], facts: Facts) -> tuple[Check, ...]:
    """`checks` where none is clear whose search found events that it leaves to others."""
    fired: dict[str, list[str]] = {}
    for check in checks:
        if check.status == CheckStatus.FIRED:
            for signal in _counted(findings[check.id]):
                fired.setdefault(signal, []).append(check.id)
    return tuple(
        _covered(check, found, fired)
        if check.status == CheckStatus.CLEAR and (found := left_out(findings[check.id], check.subjects, facts))
        else check
        for check in checks
    )


def left_out(finding: Finding, subjects: Sequence[str], facts: Facts) -> tuple[Event, ...]:
    """The events of the signals that `finding` counts, where it fails because of those that it does not count."""
    found: dict[str, Event] = {}
    for subject in subjects:
        for comparison in comparisons(finding.when):
            for event in _excluded(comparison, subject, facts):
                found.setdefault(f"{event.signal} {event.origin} {event.text}", event)
    return tuple(found.values())


def _excluded(comparison: Comparison, subject: str, facts: Facts) -> Iterator[Event]:
    term = comparison.left
    if not isinstance(term, CountTerm) or not term.field:
        return
    everything = events_of(CountTerm(term.signal), subject, facts)
    if everything and evaluate(comparison, subject, facts).status == FAILS:
        yield from everything


def _counted(finding: Finding) -> Iterator[str]:
    yield from dict.fromkeys(one.left.signal for one in comparisons(finding.when) if isinstance(one.left, CountTerm))


def _covered(check: Check, found: Sequence[Event], fired: Mapping[str, Sequence[str]]) -> Check:
    signals = dict.fromkeys(event.signal for event in found)
    owners = dict.fromkeys(name for signal in signals for name in fired.get(signal, ()))
    shown = list(dict.fromkeys(_described(event) for event in found))
    more = f" and {len(shown) - _KINDS_SHOWN} more" if len(shown) > _KINDS_SHOWN else ""
    listed = f"{', '.join(shown[:_KINDS_SHOWN])}{more}"
    by = f"covered by {', '.join(owners)}" if owners else "of a kind that this check leaves out"
    reason = Reason(ReasonCode.COVERED, f"the text reports {listed}, {by}", signals=tuple(signals))
    return structs.replace(
        check,
        status=CheckStatus.NOT_APPLICABLE,
        message=check.id.replace("-", " "),
        reason=reason.message,
        reasons=(reason,),
    )


def _described(event: Event) -> str:
    value = next((event.fields[name] for name in _NAMED if name in event.fields), "")
    words = value if isinstance(value, str) else f"{value:g}"
    return " ".join(filter(None, [event.signal.rpartition(".")[2].replace("_", " "), words]))
