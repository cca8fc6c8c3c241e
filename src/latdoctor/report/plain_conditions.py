"""Conditions, reasons and measurements without internal ids: `P99 < 0.5 x before`, `error ratio 2 % → 0 %`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from latdoctor.conditions.ast import Condition, Given, Prefer, in_words
from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evidence.catalogue import catalogue
from latdoctor.remediation.run_result import Measure

P99 = "latency.p99"
_NAMES = {
    "latency.p99": "P99",
    "latency.p95": "P95",
    "latency.p50": "median latency",
    "router.latency.p99": "P99 at the router",
    "client.latency.p99": "P99 at the client",
    "error.ratio": "error ratio",
    "error.rate": "errors",
    "arrival.rate": "arrival rate",
    "arrival.first_rate": "arrival rate without retries",
    "router.arrival_rate": "arrival rate at the router",
    "router.completion_rate": "answers of the router",
    "completion.rate": "throughput",
    "queue.depth": "queue",
    "replica.up": "share of time in service",
    "replica.load_ratio": "load against the other replicas",
    "dependency.time.mean": "mean time of the called service",
    "server.backend": "backend",
    "slo.p99": "the SLO",
    "slo.error_ratio": "the SLO of errors",
}
_ID = re.compile(r"(?<![\w./:-])[a-z][a-z0-9_]*(?:[.-][a-z0-9_]+)+(?![\w/-])")


def signal_name(signal: str) -> str:
    """A signal as a person names it."""
    return _NAMES.get(signal) or re.sub(r"[._]", " ", signal)


def plain_text(text: str) -> str:
    """`text` with the names of signals and findings instead of their ids."""
    return _ID.sub(lambda match: _known().get(match[0], match[0]), text)


@cache
def _known() -> dict[str, str]:
    signals = {name: signal_name(name) for name in (*catalogue(), *_NAMES)}
    return signals | {name: f'"{name.replace("-", " ")}"' for name in shipped().finding}


def plain_condition(condition: Condition) -> str:
    """`condition` in one short phrase: of alternatives the preferred one."""
    match condition:
        case Prefer(first, _) | Given(first, _):
            return plain_condition(first)
        case _:
            return plain_text(in_words(condition))


def headline_measure(found: Iterable[Measure], preferred: Sequence[str] = ()) -> Measure | None:
    """The worst of the subjects by the measure that users feel most: P99, else the first of `preferred`, else any."""
    seen = [one for one in found if one.after is not None]
    for signal in (P99, *preferred):
        if of_it := [one for one in seen if one.signal == signal]:
            return max(of_it, key=lambda one: one.after or 0.0)
    return seen[0] if seen else None


def change_of(measure: Measure) -> str:
    """`P99 2.48 s → 310 ms`."""
    return f"{signal_name(measure.signal)} {show(measure.signal, measure.before)} → {_after(measure)}"


def short_change_of(measure: Measure) -> str:
    """The same with an equal value once: `error ratio 0 %`."""
    before, after = show(measure.signal, measure.before), _after(measure)
    return f"{signal_name(measure.signal)} {before}" if before == after else change_of(measure)


def value_after(measure: Measure) -> str:
    """`P99 310 ms`."""
    return f"{signal_name(measure.signal)} {_after(measure)}"


def _after(measure: Measure) -> str:
    return "not measured" if measure.after is None else show(measure.signal, measure.after)
