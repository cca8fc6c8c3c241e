"""The steps of a pipeline that one server runs (a Triton ensemble), and what each takes of a request.

A server does not say which model is a pipeline and which are its steps. It follows from their times: a pipeline's time
in the models is the sum of its steps' times, each as often as it runs for a request. Where the steps' inference times
are known these are summed, else their whole times. A model is taken for a pipeline where the sum over at least two
others comes within TOLERANCE of its own time, and none of them is negligible alone: such a sum seldom comes by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.evidence.model import Evidence, Origin, Reading

CALLS, QUEUE, COMPUTE = "pipeline.calls_per_request", "pipeline.queue_share", "pipeline.compute_share"
DERIVED = (CALLS, QUEUE, COMPUTE)
SOURCES = ("latency.mean", "queue.time.mean")
_INFER, _COUNT, _MODEL = "compute.infer.mean", "completion.count", "model/"
TOLERANCE = 0.05
_LEAST = 0.001  # of the pipeline's time, below which a step proves nothing
_MOST_MODELS = 10  # of one server; all subsets are tried


@dataclass(frozen=True, slots=True)
class _Model:
    """One model. Times in seconds; `infer` and `count` are None where unknown."""

    source: Reading
    latency: float
    queue: float
    infer: float | None
    count: float | None


def pipeline_steps(evidence: Evidence) -> Evidence:
    """Derive the `pipeline.*` readings of every step of a pipeline."""
    found: list[Reading] = []
    for models in _by_server(evidence).values():
        if 3 <= len(models) <= _MOST_MODELS:
            found.extend(_of_server(models))
    return Evidence(readings=tuple(found))


def _by_server(evidence: Evidence) -> Mapping[str, list[_Model]]:
    queue, infer, count = (latest_values(evidence, name) for name in ("queue.time.mean", _INFER, _COUNT))
    servers: dict[str, list[_Model]] = {}
    for one, latency in latest_numbers(evidence, "latency.mean"):
        if one.subject.startswith(_MODEL) and latency > 0:
            subject = one.subject
            model = _Model(one, latency, queue.get(subject, 0.0), infer.get(subject), count.get(subject))
            servers.setdefault(subject.partition("@")[2], []).append(model)
    return servers


def _of_server(models: list[_Model]) -> Iterator[Reading]:
    slowest = max(models, key=lambda model: model.latency)
    steps = _steps(slowest, [model for model in models if model is not slowest])
    for step in steps:
        calls = _calls(step, slowest)
        whole = slowest.latency
        note = f"a step of {slowest.source.subject.partition('@')[0].removeprefix(_MODEL)}"
        if step.count and slowest.count:
            yield _reading(step, CALLS, calls, note)
        yield _reading(step, QUEUE, calls * step.queue / whole, note)
        yield _reading(step, COMPUTE, calls * max(0.0, step.latency - step.queue) / whole, note)


def _calls(step: _Model, pipeline: _Model) -> float:
    return step.count / pipeline.count if step.count and pipeline.count else 1.0


def _steps(pipeline: _Model, others: list[_Model]) -> tuple[_Model, ...]:
    """The largest set of `others` whose times add up to that of `pipeline`; empty if there is none."""
    for size in range(len(others), 1, -1):
        for chosen in combinations(others, size):
            if _adds_up(pipeline, chosen):
                return chosen
    return ()


def _adds_up(pipeline: _Model, chosen: tuple[_Model, ...]) -> bool:
    infers = [model.infer for model in chosen]
    if pipeline.infer and None not in infers:
        whole, parts = pipeline.infer, [infer for infer in infers if infer is not None]
    else:
        whole, parts = pipeline.latency, [model.latency for model in chosen]
    times = [_calls(model, pipeline) * part for model, part in zip(chosen, parts, strict=True)]
    notable = sum(time > _LEAST * whole for time in times)
    return notable >= 2 and abs(sum(times) - whole) <= TOLERANCE * whole


def _reading(step: _Model, signal: str, value: float, note: str) -> Reading:
    source = step.source
    return Reading(signal, source.subject, value, Origin(source.origin.artifact, note), source.window, (), note)
