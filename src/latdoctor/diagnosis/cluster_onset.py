"""Since when something is wrong in a cluster, where no latency shows since when it is slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.conditions.ast import CountTerm, comparisons
from latdoctor.diagnosis.codes import CheckStatus
from latdoctor.diagnosis.result import Check, Onset
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evidence.model import Event, Evidence

EVENTS = "kube."
FIRST = "first_time"  # the field of an event that repeats: when it first happened
_GRAVE = ("critical", "warning")


def cluster_onset(evidence: Evidence, checks: Sequence[Check], rules: RuleSet) -> Onset | None:
    """The earliest event of Kubernetes by which a finding of that severity holds."""
    events = [event for check in checks if _is_grave(check) for event in _events(evidence, check, rules)]
    first = min(events, key=began, default=None)
    if first is None:
        return None
    return Onset(began(first), None, first.signal, first.subject, 0.0, 0.0, first.origin)


def _is_grave(check: Check) -> bool:
    return check.status == CheckStatus.FIRED and check.severity in _GRAVE


def _events(evidence: Evidence, check: Check, rules: RuleSet) -> Iterator[Event]:
    for comparison in comparisons(rules.finding[check.id].when):
        term = comparison.left
        if isinstance(term, CountTerm) and term.signal.startswith(EVENTS):
            found = (one for one in evidence.events_by_signal.get(term.signal, ()) if _matches(one, term))
            yield from (one for one in found if one.time is not None)


def _matches(event: Event, term: CountTerm) -> bool:
    return not term.field or (event.fields.get(term.field) in term.values) != term.excluded


def began(event: Event) -> float:
    """When the event happened, the first time of one that repeats; unix seconds."""
    first = event.fields.get(FIRST)
    return first if isinstance(first, float) else event.time or 0.0
