"""The looks that one recorded run gives: the plain one, ones that lack a source, ones at the wrong time.

Nothing is played for them: each is cut out of the same recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from latdoctor.answering import seen
from latdoctor.collect import COLLECTORS
from latdoctor.collect.source import Collector
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.trials.cutting import PAGES, cut
from latdoctor.trials.truth import Told

PLAIN, BEFORE = "plain", "before"
SHIFTS = {"60 s early": -60.0, "60 s late": 60.0}
_TRACES = ("torch_trace", "nsight")


@dataclass(frozen=True, slots=True)
class View:
    """One look. `baseline` is in its bundle where whoever looks has one."""

    name: str
    bundle: Bundle


def views(whole: Bundle, told: Told, collectors: Sequence[Collector] = COLLECTORS) -> Iterator[View]:
    """The plain look first, then the look before the incident, then all others that differ from the plain one."""
    plain, before = at(whole, told, 0.0), None
    if told.before is not None:
        before = cut(whole, told, told.before)
        remembered = baselines.record(seen(before, collectors)[0], whole.context.target, "")
        plain = replace(plain, baseline=remembered)
    yield View(PLAIN, plain)
    if before is not None:
        yield View(BEFORE, before)
    for name, lacks in WITHHELD.items():
        left = lacks(plain, told)
        if left != plain and left.artifacts:
            yield View(f"no {name}", left)
    for name, seconds in SHIFTS.items():
        if _can_be_moved(told, seconds, whole):
            yield View(name, replace(at(whole, told, seconds), baseline=plain.baseline))


def at(whole: Bundle, told: Told, shift: float) -> Bundle:
    """The look at the incident, or at what lies so many seconds after it."""
    return whole if told.incident is None else cut(whole, told, told.incident.moved(shift))


def _can_be_moved(told: Told, seconds: float, whole: Bundle) -> bool:
    """Whether the moved look still sees some of the incident, and the recording reaches far enough."""
    if told.incident is None or told.incident.seconds <= abs(seconds):
        return False
    times = [artifact.taken_at for artifact in whole.artifacts]
    moved = told.incident.moved(seconds)
    return bool(times) and min(times) <= moved.start and moved.end <= max(times)


def _without(keep: Callable[[Artifact, Told], bool]) -> Callable[[Bundle, Told], Bundle]:
    def lacking(bundle: Bundle, told: Told) -> Bundle:
        return replace(bundle, artifacts=tuple(artifact for artifact in bundle.artifacts if keep(artifact, told)))

    return lacking


def _is_clients(artifact: Artifact, told: Told) -> bool:
    return artifact.collector == PAGES and artifact.source == told.clients


# What can be withheld, one source at a time.
WITHHELD: Mapping[str, Callable[[Bundle, Told], Bundle]] = {
    "NVML": _without(lambda artifact, told: artifact.collector != "nvml"),
    "trace": _without(lambda artifact, told: artifact.collector not in _TRACES),
    "log": _without(lambda artifact, told: artifact.collector != "logs"),
    "baseline": lambda bundle, told: replace(bundle, baseline=None),
    "host": _without(lambda artifact, told: artifact.collector != "host"),
    "server page": _without(lambda artifact, told: artifact.collector != PAGES or _is_clients(artifact, told)),
    "clients' page": _without(lambda artifact, told: not _is_clients(artifact, told)),
}
