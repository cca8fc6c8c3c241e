"""What tells the processes behind the scraped pages of a bundle apart."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.collectors.outage import is_outage
from latdoctor.collectors.prometheus import NAME, exposition
from latdoctor.dialects.metrics_page_model import MetricsPage
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.page_state import PageState

_STARTS = ("process_start_time_seconds", "ref_start_time_seconds")
_COUNTED = ("_total", "_count")  # endings of the names of counters
_MOST = 50  # counters of a page


def page_states(bundle: Bundle) -> tuple[PageState, ...]:
    """The state of each page at its last scrape; an unreadable page has none."""
    last: dict[str, Artifact] = {}
    for artifact in bundle.artifacts:
        if artifact.collector == NAME and not is_outage(artifact):
            last[artifact.source] = max((artifact, last.get(artifact.source, artifact)), key=lambda one: one.taken_at)
    return tuple(_states(last))


def _states(pages: dict[str, Artifact]) -> Iterator[PageState]:
    for source, artifact in pages.items():
        try:
            page = exposition.parse(artifact.read(exposition.MAX_BYTES), source)
        except SourceError:  # the window then has no data of it, which the observation says
            continue
        yield PageState(source, _started(page), _counters(page))


def _started(page: MetricsPage) -> float | None:
    """None where the page has several processes, or does not show it."""
    for name in _STARTS:
        samples = page.samples.get(name, ())
        if len(samples) == 1:
            return samples[0].value
    return None


def _counters(page: MetricsPage) -> dict[str, float]:
    names = [name for name in page.samples if name.endswith(_COUNTED)][:_MOST]
    return {name: sum(sample.value for sample in page.samples[name]) for name in names}
