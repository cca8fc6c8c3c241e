"""From a bundle to its diagnosis: the stages put together, for every command and for the incident bench."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.collect import COLLECTORS
from latdoctor.collect.look import evidence_of
from latdoctor.collect.source import Collector
from latdoctor.detect import derive
from latdoctor.diagnosis.diagnose import Case
from latdoctor.diagnosis.judge import Provider
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Coverage, Evidence, Gap
from latdoctor.evidence.signals import catalogue
from latdoctor.text import clean

_KINDS_SHOWN = 5


def seen(bundle: Bundle, collectors: Sequence[Collector] = COLLECTORS) -> tuple[Evidence, tuple[Coverage, ...]]:
    """Everything a bundle says, derived readings included."""
    evidence, coverage = evidence_of(collectors, bundle)
    return derive(Evidence.merge([evidence, Evidence(gaps=_unread(bundle))])), coverage


def _unread(bundle: Bundle) -> tuple[Gap, ...]:
    """What is there and is of no kind that is known: a newer version may have written it."""
    known = {collector.name for collector in COLLECTORS}
    kinds = sorted({clean(one.collector, 40) for one in bundle.artifacts if one.collector not in known})
    if not kinds:
        return ()
    shown = ", ".join(kinds[:_KINDS_SHOWN]) + (" and more" if len(kinds) > _KINDS_SHOWN else "")
    step = "read it with the version that wrote it: its manifest says which"
    return (Gap("bundle", f"artifacts of a kind that this version cannot read: {shown}", (), None, step),)


def case(bundle: Bundle, evidence: Evidence, coverage: tuple[Coverage, ...]) -> Case:
    """What a diagnosis of `bundle` starts from; `evidence` is what is seen in it."""
    return Case(
        context=bundle.context,
        window=bundle.window,
        evidence=evidence,
        baseline=bundle.baseline.lookup if bundle.baseline else {},
        coverage=coverage,
        providers=tuple(Provider(c.name, c.ask, c.cost, _shown(c)) for c in COLLECTORS if c.ask),
    )


def _shown(collector: Collector) -> frozenset[str]:
    """What a look by it tells, with what is derived from its distributions (`latency` gives `latency.p99`)."""
    spread = tuple(f"{name}." for name in collector.provides if catalogue()[name].kind == "distribution")
    return (collector.provides - collector.by_chance) | {name for name in catalogue() if name.startswith(spread)}
