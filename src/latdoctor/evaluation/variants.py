"""Variants of one recorded incident: the plain observation, and the same with a source withheld or at a wrong time.

A recording is a series of snapshots. A slice of it has the artifacts of one time range, named and grouped as a live
collection names and groups them, so it is diagnosed like any other bundle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from latdoctor.case_from_bundle import seen
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Collector
from latdoctor.collectors.prometheus import scrape
from latdoctor.evaluation.ground_truth import IncidentContext, TimedGap, TimeRange
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.model import Gap, Window
from latdoctor.gap_code import GapCode

HOST = "host"
PAGES = "prometheus"
STOPPED = "-stopped.prom"  # suffix of the last page of a server that stopped answering
MOST = {PAGES: 11, HOST: 41}  # artifacts per source that a live collection keeps of its window


def slice_bundle(bundle: Bundle, context: IncidentContext, span: TimeRange) -> Bundle:
    """The artifacts and gaps of `bundle` within `span`, without a baseline."""
    inside = [artifact for artifact in bundle.artifacts if span.contains(artifact.taken_at)]
    gaps = [gap for gap in context.gaps if span.contains(gap.at)]
    others = [artifact for artifact in inside if artifact.collector not in (HOST, PAGES)]
    kept = (*_pages(inside, gaps), *_host_samples(inside), *others)
    times = [artifact.taken_at for artifact in kept] or [span.start, span.end]
    return replace(
        bundle,
        window=Window(min(times), max(times)),
        artifacts=kept,
        gaps=tuple(dict.fromkeys((*bundle.gaps, *_gaps(kept, gaps)))),
        baseline=None,
    )


def _host_samples(inside: Sequence[Artifact]) -> Iterator[Artifact]:
    """The samples of the process that was watched longest: a live collection watches one process."""
    own = [artifact for artifact in inside if artifact.collector == HOST]
    if not own:
        return
    longest = Counter(artifact.group for artifact in own).most_common(1)[0][0]
    samples = sorted((artifact for artifact in own if artifact.group == longest), key=lambda sample: sample.taken_at)
    for number, sample in enumerate(_thinned(samples, MOST[HOST])):
        yield replace(sample, name=f"{HOST}/{number:03d}.json", group=HOST)


def _pages(inside: Sequence[Artifact], gaps: Sequence[TimedGap]) -> Iterator[Artifact]:
    groups: dict[str, list[Artifact]] = {}
    for artifact in sorted(inside, key=lambda page: page.taken_at):
        if artifact.collector == PAGES:
            groups.setdefault(artifact.group, []).append(artifact)
    for group, pages in groups.items():
        failures = [gap.at for gap in gaps if gap.gap.subject == _server(pages[0].source)]
        stopped = bool(failures) and max(failures) > pages[-1].taken_at
        kept = _thinned(pages, MOST[PAGES])
        for number, page in enumerate(kept):
            last = stopped and number == len(kept) - 1
            yield replace(page, name=f"{PAGES}/{group}-{number:02d}{STOPPED if last else '.prom'}")


def _server(source: str) -> str | None:
    """The subject of a gap about the metrics page at `source`."""
    try:
        return f"server/{scrape.parse_target(source).name}"
    except ValueError:  # not a live page's address
        return None


def _thinned(artifacts: Sequence[Artifact], most: int) -> Sequence[Artifact]:
    """At most `most` of `artifacts`, evenly spaced, with the first and the last."""
    if len(artifacts) <= most:
        return artifacts
    return [artifacts[round(step * (len(artifacts) - 1) / (most - 1))] for step in range(most)]


def _gaps(kept: Sequence[Artifact], gaps: Sequence[TimedGap]) -> Iterator[Gap]:
    """The gaps of a slice. A failed scrape of a server with other pages hides no signals unless the server stopped."""
    pages = {_server(artifact.source): artifact.source for artifact in kept if artifact.collector == PAGES}
    stopped = {artifact.source for artifact in kept if artifact.name.endswith(STOPPED)}
    for gap in (timed.gap for timed in gaps):
        source = pages.get(gap.subject) if gap.subject else None
        if source is None:
            yield gap
        elif source in stopped:
            yield Gap(gap.source, f"{source} stopped answering within the window", gap.signals, code=GapCode.STOPPED)
        else:
            yield Gap(gap.source, f"{source}: some scrapes failed", (), code=gap.code)


PLAIN, BEFORE = "plain", "before"
WHOLE = "whole recording, no baseline"  # what `diagnose BUNDLE` sees where the incident's time is not known
SHIFTS = {"60 s early": -60.0, "60 s late": 60.0}  # seconds by which the window is displaced
_TRACES = ("torch_trace", "nsight")


@dataclass(frozen=True, slots=True)
class Variant:
    """One observation of a run. Its bundle has a baseline where the run was observed before the incident."""

    name: str
    bundle: Bundle


def variants(
    whole: Bundle, context: IncidentContext, collectors: Sequence[Collector] = COLLECTORS
) -> Iterator[Variant]:
    """The plain variant, the one before the incident, then every other that differs from the plain one."""
    plain, before = incident_slice(whole, context, 0.0), None
    if context.before is not None:
        before = slice_bundle(whole, context, context.before)
        baseline = baselines.record(seen(before, collectors)[0], whole.context.target, "")
        plain = replace(plain, baseline=baseline)
    yield Variant(PLAIN, plain)
    if before is not None:
        yield Variant(BEFORE, before)
    if context.incident is not None:
        yield Variant(WHOLE, replace(whole, baseline=None))
    for name, withhold in WITHHELD.items():
        remaining = withhold(plain, context)
        if remaining != plain and remaining.artifacts:
            yield Variant(f"no {name}", remaining)
    for name, seconds in SHIFTS.items():
        if _can_shift(context, seconds, whole):
            yield Variant(name, replace(incident_slice(whole, context, seconds), baseline=plain.baseline))


def incident_slice(whole: Bundle, context: IncidentContext, shift: float) -> Bundle:
    """The incident's slice, displaced by `shift` seconds; the whole bundle where no incident is known."""
    return whole if context.incident is None else slice_bundle(whole, context, context.incident.shifted(shift))


def _can_shift(context: IncidentContext, seconds: float, whole: Bundle) -> bool:
    """Whether the displaced window overlaps the incident and the recording covers it."""
    if context.incident is None or context.incident.seconds <= abs(seconds):
        return False
    times = [artifact.taken_at for artifact in whole.artifacts]
    shifted = context.incident.shifted(seconds)
    return bool(times) and min(times) <= shifted.start and shifted.end <= max(times)


def _only(keep: Callable[[Artifact, IncidentContext], bool]) -> Callable[[Bundle, IncidentContext], Bundle]:
    def filtered(bundle: Bundle, context: IncidentContext) -> Bundle:
        return replace(bundle, artifacts=tuple(one for one in bundle.artifacts if keep(one, context)))

    return filtered


def _is_client_page(artifact: Artifact, context: IncidentContext) -> bool:
    return artifact.collector == PAGES and artifact.source == context.clients


# The sources that are withheld, one per variant.
WITHHELD: Mapping[str, Callable[[Bundle, IncidentContext], Bundle]] = {
    "NVML": _only(lambda artifact, _: artifact.collector != "nvml"),
    "trace": _only(lambda artifact, _: artifact.collector not in _TRACES),
    "log": _only(lambda artifact, _: artifact.collector != "logs"),
    "baseline": lambda bundle, _: replace(bundle, baseline=None),
    "host": _only(lambda artifact, _: artifact.collector != HOST),
    "server page": _only(lambda artifact, context: artifact.collector != PAGES or _is_client_page(artifact, context)),
    "clients' page": _only(lambda artifact, context: not _is_client_page(artifact, context)),
}
