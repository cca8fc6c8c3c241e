"""From everything that was read over a run to one look of it: what was read between two moments.

A recording holds snapshots. A look at a span is those that lie in it, named and grouped as a live look names and groups
them, so that what is cut is diagnosed as any other bundle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Collector
from latdoctor.evaluation.ground_truth import IncidentContext, TimedGap, TimeRange
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.model import Gap, Window
from latdoctor.pipeline import seen

HOST = "host"
PAGES = "prometheus"
STOPPED = "-stopped.prom"  # as a look ends the name of the last page of a server that gave no more
MOST = {PAGES: 11, HOST: 41}  # that a look takes of one source over its window, however long that is


def slice_bundle(bundle: Bundle, told: IncidentContext, span: TimeRange) -> Bundle:
    """The look at `span`, without a baseline."""
    inside = [artifact for artifact in bundle.artifacts if span.holds(artifact.taken_at)]
    others = [artifact for artifact in inside if artifact.collector not in (HOST, PAGES)]
    kept = (*_pages(inside, told, span), *_host(inside), *others)
    times = [artifact.taken_at for artifact in kept] or [span.start, span.end]
    return replace(
        bundle,
        window=Window(min(times), max(times)),
        artifacts=kept,
        gaps=tuple(dict.fromkeys((*bundle.gaps, *_gaps(kept, told, span)))),
        baseline=None,
    )


def _host(inside: Sequence[Artifact]) -> Iterator[Artifact]:
    """The samples of one process: a look watches the one that it was told of."""
    own = [artifact for artifact in inside if artifact.collector == HOST]
    if not own:
        return
    most = Counter(artifact.group for artifact in own).most_common(1)[0][0]
    samples = sorted((artifact for artifact in own if artifact.group == most), key=lambda one: one.taken_at)
    for number, sample in enumerate(_thinned(samples, MOST[HOST])):
        yield replace(sample, name=f"{HOST}/{number:03d}.json", group=HOST)


def _pages(inside: Sequence[Artifact], told: IncidentContext, span: TimeRange) -> Iterator[Artifact]:
    groups: dict[str, list[Artifact]] = {}
    for artifact in sorted(inside, key=lambda one: one.taken_at):
        if artifact.collector == PAGES:
            groups.setdefault(artifact.group, []).append(artifact)
    for group, pages in groups.items():
        failed = [one.at for one in _failures(pages[0].source, told, span)]
        stopped = bool(failed) and max(failed) > pages[-1].taken_at
        taken = _thinned(pages, MOST[PAGES])
        for number, page in enumerate(taken):
            last = stopped and number == len(taken) - 1
            yield replace(page, name=f"{PAGES}/{group}-{number:02d}{STOPPED if last else '.prom'}")


def _thinned(taken: Sequence[Artifact], most: int) -> Sequence[Artifact]:
    """The first, the last, and evenly some between them."""
    if len(taken) <= most:
        return taken
    return [taken[round(step * (len(taken) - 1) / (most - 1))] for step in range(most)]


def _failures(source: str, told: IncidentContext, span: TimeRange) -> Sequence[TimedGap]:
    return [one for one in told.gaps if span.holds(one.at) and one.gap.reason.startswith(f"{source} ")]


def _gaps(kept: Sequence[Artifact], told: IncidentContext, span: TimeRange) -> Iterator[Gap]:
    """Why a snapshot lacks something. Of a server that has shown pages, only that some were missing."""
    shown = {artifact.source for artifact in kept if artifact.collector == PAGES}
    for one in told.gaps:
        if not span.holds(one.at):
            continue
        source = next((name for name in shown if one.gap.reason.startswith(f"{name} ")), "")
        if not source:
            yield one.gap
        elif any(artifact.name.endswith(STOPPED) and artifact.source == source for artifact in kept):
            yield Gap(one.gap.source, f"{source} stopped answering while it was watched", one.gap.signals)
        else:
            yield Gap(one.gap.source, f"{source}: some scrapes failed", ())


PLAIN, BEFORE = "plain", "before"
SHIFTS = {"60 s early": -60.0, "60 s late": 60.0}
_TRACES = ("torch_trace", "nsight")


@dataclass(frozen=True, slots=True)
class Variant:
    """One look. `baseline` is in its bundle where whoever looks has one."""

    name: str
    bundle: Bundle


def variants(whole: Bundle, told: IncidentContext, collectors: Sequence[Collector] = COLLECTORS) -> Iterator[Variant]:
    """The plain look first, then the look before the incident, then all others that differ from the plain one."""
    plain, before = incident_slice(whole, told, 0.0), None
    if told.before is not None:
        before = slice_bundle(whole, told, told.before)
        remembered = baselines.record(seen(before, collectors)[0], whole.context.target, "")
        plain = replace(plain, baseline=remembered)
    yield Variant(PLAIN, plain)
    if before is not None:
        yield Variant(BEFORE, before)
    for name, lacks in WITHHELD.items():
        left = lacks(plain, told)
        if left != plain and left.artifacts:
            yield Variant(f"no {name}", left)
    for name, seconds in SHIFTS.items():
        if _can_be_moved(told, seconds, whole):
            yield Variant(name, replace(incident_slice(whole, told, seconds), baseline=plain.baseline))


def incident_slice(whole: Bundle, told: IncidentContext, shift: float) -> Bundle:
    """The look at the incident, or at what lies so many seconds after it."""
    return whole if told.incident is None else slice_bundle(whole, told, told.incident.moved(shift))


def _can_be_moved(told: IncidentContext, seconds: float, whole: Bundle) -> bool:
    """Whether the moved look still sees some of the incident, and the recording reaches far enough."""
    if told.incident is None or told.incident.seconds <= abs(seconds):
        return False
    times = [artifact.taken_at for artifact in whole.artifacts]
    moved = told.incident.moved(seconds)
    return bool(times) and min(times) <= moved.start and moved.end <= max(times)


def _without(keep: Callable[[Artifact, IncidentContext], bool]) -> Callable[[Bundle, IncidentContext], Bundle]:
    def lacking(bundle: Bundle, told: IncidentContext) -> Bundle:
        return replace(bundle, artifacts=tuple(artifact for artifact in bundle.artifacts if keep(artifact, told)))

    return lacking


def _is_clients(artifact: Artifact, told: IncidentContext) -> bool:
    return artifact.collector == PAGES and artifact.source == told.clients


# What can be withheld, one source at a time.
WITHHELD: Mapping[str, Callable[[Bundle, IncidentContext], Bundle]] = {
    "NVML": _without(lambda artifact, told: artifact.collector != "nvml"),
    "trace": _without(lambda artifact, told: artifact.collector not in _TRACES),
    "log": _without(lambda artifact, told: artifact.collector != "logs"),
    "baseline": lambda bundle, told: replace(bundle, baseline=None),
    "host": _without(lambda artifact, told: artifact.collector != "host"),
    "server page": _without(lambda artifact, told: artifact.collector != PAGES or _is_clients(artifact, told)),
    "clients' page": _without(lambda artifact, told: not _is_clients(artifact, told)),
}
