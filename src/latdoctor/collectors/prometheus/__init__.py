"""Metrics pages: scraped over a window, or read from files."""

from __future__ import annotations

from latdoctor.collectors import outage
from latdoctor.collectors.base import Collector, SourceReader

NAME = "prometheus"
TITLE = "Metrics pages"


def provided_signals() -> frozenset[str]:
    """The signals of all dialects, the changes that their pages show, and outages."""
    from latdoctor.dialects.changes import change_signals
    from latdoctor.dialects.loader import shipped_signals

    read = shipped_signals()
    return read | change_signals(read) | outage.SIGNALS


def _reader() -> SourceReader:
    from latdoctor.collectors.prometheus.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=provided_signals,
    is_requested=lambda request: bool(request.pages or request.metrics),
    reader=_reader,
    option="--server URL (or --metrics FILE)",
    cost="takes the window",
)
