"""What the configuration of a model says about its measurements.

A configuration that was saved to a file names the model but not the server: where exactly one measured model has that
name, its values are that model's. And where a server counts executions and knows its instances, the share of time in
which they compute follows: executions per second × time of one, over the instances. Where it sums up the time of its
requests instead and takes no batches, those that neither wait nor are answered are computed: as many instances compute.
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
IN_SERVER, IN_QUEUE, BATCH = "requests.in_server", "requests.in_queue", "config.batch_max"
DEVICE, BACKEND, CPU = "config.device", "server.backend", "cpu"
BUSY_OF = frozenset({EXECUTIONS, COMPUTE, INSTANCES})  # what the share follows from
BUSY_ALONE_OF = frozenset({IN_SERVER, IN_QUEUE, INSTANCES, BATCH})  # and without batches


def model_configurations(evidence: Evidence) -> Evidence:
    """Derive the configuration of measured models, `forward.utilization` from their instances, and `server.backend`."""
    joined = tuple(_joined(evidence))
    known = Evidence.merge([evidence, Evidence(readings=joined)])
    return Evidence(readings=(*joined, *_busy(known), *_busy_without_batches(known), *_backends(known)))


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


def _busy_without_batches(evidence: Evidence) -> Iterator[Reading]:
    """Of a worker that takes one request at a time; its time counts once the request is answered."""
    waiting, instances, sizes = (latest_values(evidence, name) for name in (IN_QUEUE, INSTANCES, BATCH))
    reported = {one.subject for one in evidence.readings_by_signal.get(BUSY, ())}
    for one, held in latest_numbers(evidence, IN_SERVER):
        count, waits = instances.get(one.subject), waiting.get(one.subject)
        if one.subject in reported or waits is None or not count or count < 1 or sizes.get(one.subject) != 1:
            continue
        computed = max(0.0, held - waits)
        note = f"estimated: {computed:.3g} requests computed at once on {counted(int(count), 'instance')}"
        origin = Origin(one.origin.artifact, f"({IN_SERVER} - {IN_QUEUE}) / {INSTANCES}")
        yield Reading(BUSY, one.subject, min(1.0, computed / count), origin, one.window, (), note)


def _backends(evidence: Evidence) -> Iterator[Reading]:
    """That a model computes on the CPU, where it is configured so and no source shows a GPU."""
    if any(one.subject.startswith("gpu/") for one in evidence.readings):
        return
    reported = {one.subject for one in evidence.readings_by_signal.get(BACKEND, ())}
    for one in evidence.readings_by_signal.get(DEVICE, ()):
        if one.value == CPU and one.subject not in reported:
            note = "as the model is configured; no source shows a GPU"
            yield Reading(BACKEND, one.subject, CPU, Origin(one.origin.artifact, DEVICE), one.window, (), note)
