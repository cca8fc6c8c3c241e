"""What a frontend knows of the requests that its workers compute, given to the workers, too.

NVIDIA Dynamo's frontend counts requests and their lengths by model, and states how many sequences one worker takes; its
workers count what runs and the KV cache. Lengths, and a rise of the arrivals, are those of the same requests on either
side. Rates and queues are not: a worker has its share of them. A model with two frontends is joined with neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from latdoctor.detectors.derived_readings import latest_numbers
from latdoctor.evidence.model import Evidence, Origin, Reading

PER_WORKER, LIMIT = "config.concurrency", "requests.limit"
RUNNING, ARRIVALS = "requests.running", "arrival.rate"
# The signal of the frontend, and that of the worker.
SHARED: Mapping[str, str] = {
    PER_WORKER: LIMIT,
    "output.length.mean": "output.length.mean",
    "output.length.before": "output.length.before",
    "input.length.mean": "input.length.mean",
    "input.length.before": "input.length.before",
    "arrival.jump": "arrival.jump",
    "arrival.jump_stays": "arrival.jump_stays",
}
_HOST = "@"


def join_frontends(evidence: Evidence) -> Evidence:
    """Derive the readings of SHARED for each worker whose model has one frontend, where the worker lacks them."""
    fronts: dict[str, list[str]] = {}
    for one, _ in latest_numbers(evidence, PER_WORKER):
        fronts.setdefault(_model(one.subject), []).append(one.subject)
    counting = {one.subject for one in evidence.readings_by_signal.get(ARRIVALS, ())}
    running = {one.subject for one, _ in latest_numbers(evidence, RUNNING)}
    found: list[Reading] = []
    for worker in sorted(running - counting):
        front = fronts.get(_model(worker), []) if _HOST in worker else []
        if len(front) == 1 and front[0] != worker:
            found += _given(evidence, front[0], worker)
    return Evidence(readings=tuple(found))


def _given(evidence: Evidence, front: str, worker: str) -> Iterator[Reading]:
    for signal, own in SHARED.items():
        if any(one.subject == worker for one in evidence.readings_by_signal.get(own, ())):
            continue
        for one, _ in latest_numbers(evidence, signal):
            if one.subject == front:
                origin = Origin(one.origin.artifact, f"{one.origin.place}, of the frontend")
                yield structs.replace(one, signal=own, subject=worker, origin=origin)


def _model(subject: str) -> str:
    return subject.rpartition(_HOST)[0]
