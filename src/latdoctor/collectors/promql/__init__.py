"""A Prometheus server queried over its HTTP API: the judged window and the history before it."""

from __future__ import annotations

from latdoctor.collectors import outage
from latdoctor.collectors.base import Collector, SourceReader

NAME = "promql"
TITLE = "Prometheus server"
CHANGES = frozenset({"change.process_start", "change.model", "change.version", "change.config", "change.replicas"})


def _signals() -> frozenset[str]:
    """The signals of all dialects, the changes that its series show, and outages."""
    from latdoctor.dialects.loader import shipped_signals

    return shipped_signals() | CHANGES | outage.SIGNALS


def _reader() -> SourceReader:
    from latdoctor.collectors.promql.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=_signals,
    is_requested=lambda request: request.prometheus is not None,
    reader=_reader,
    option="",  # its signals are those of metrics pages, which are suggested instead
    cost="some queries to that server",
)
