"""What the configuration of a model says about its measurements.

A configuration that was saved to a file names the model but not the server: where exactly one measured model has that
name, its values are that model's. And where a server counts executions and knows its instances, the share of time in
which they compute follows: executions per second × time of one, over the instances.
"""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.evidence.model import Evidence, Origin, Reading
from latdoctor.sanitize import counted

_PREFIX = "config."
EXECUTIONS, COMPUTE, INSTANCES, BUSY = (
    "forward.rate",
    "compute.time.mean",
    "config.instances",
    "forward.utilization",
)
BUSY_OF = frozenset({EXECUTIONS, COMPUTE, INSTANCES})  # what the share follows from


def model_configurations(evidence: Evidence) -> Evidence:
    """Derive the configuration of measured models, and `forward.utilization` from their instances."""
    joined = tuple(_joined(evidence))
    return Evidence(readings=(*joined, *_busy(Evidence.merge([evidence, Evidence(readings=joined)]))))


def _joined(evidence: Evidence) -> Iterator[Reading]:
    configured = [one for one in evidence.readings if one.signal.startswith(_PREFIX)]
    if not configured:
        return
    owners = {one.subject for one in configured}
    measured: dict[str, set[str]] = {}
    for one in evidence.readings:
        if one.subject not in owners and one.subject.startswith("model/"):
            measured.setdefault(_model(one.subject), set()).add(one.subject)
    has_measurements = {one.subject for one in evidence.readings if not one.signal.startswith(_PREFIX)}
    for one in configured:
        found = measured.get(_model(one.subject), set())
        if one.subject not in has_measurements and len(found) == 1:
            yield Reading(one.signal, next(iter(found)), one.value, one.origin, one.window, one.labels, one.note)


def _model(subject: str) -> str:
    """`model/sum` of `model/sum@127.0.0.1:8002`."""
    return subject.partition("@")[0]


def _busy(evidence: Evidence) -> Iterator[Reading]:
    """One instance computes at most all the time; the time of a request weighs large batches more, so it may exceed."""
    times, instances = (latest_values(evidence, name) for name in (COMPUTE, INSTANCES))
    reported = {one.subject for one in evidence.readings_by_signal.get(BUSY, ())}
    for one, rate in latest_numbers(evidence, EXECUTIONS):
        time, count = times.get(one.subject), instances.get(one.subject)
        if one.subject in reported or time is None or not count or count < 1:
            continue
        note = f"estimated: {rate:.3g} executions/s of {time * 1000:.3g} ms on {counted(int(count), 'instance')}"
        origin = Origin(one.origin.artifact, f"{EXECUTIONS} × {COMPUTE} / {INSTANCES}")
        yield Reading(BUSY, one.subject, min(1.0, rate * time / count), origin, one.window, (), note)
