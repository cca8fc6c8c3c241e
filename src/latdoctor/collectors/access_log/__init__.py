"""Access logs as a source of latency, arrivals and errors."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "access_log"
TITLE = "access logs"
SIGNALS = (
    "latency", "latency.mean", "latency.p50", "latency.p95", "latency.p99", "arrival.rate", "completion.rate",
    "error.ratio", "error.rate", "cancel.rate", "request.latency", "request.stage_time",
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.access_log.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset(SIGNALS),
    is_requested=lambda request: False,  # the log collector reads the files of `--log`: a pipe can be read only once
    reader=_reader,
    option="--log FILE (an access log)",
    cost="reads a file",
)
