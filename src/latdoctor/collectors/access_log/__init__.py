"""Access logs as a source of latency, arrivals and errors."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "access_log"
TITLE = "access logs"
ERROR_LINE = "log.upstream_error"
# Of every request log, so that one that cannot be read hides them.
SIGNALS = (
    "latency", "latency.mean", "latency.p50", "latency.p95", "latency.p99", "arrival.rate", "completion.rate",
    "error.ratio", "error.rate", "cancel.rate", "request.latency", "request.stage_time", "request.count",
)  # fmt: skip
# Only of logs that write stages, and of a proxy's error log: never hidden or ruled out by another log.
BY_CHANCE = (
    "body.time.mean", "queue.time.mean", "queue.time.p99", "preprocess.time.mean", "compute.time.mean",
    "compute.time.p99", "postprocess.time.mean", "ttft.mean", "ttft.p99", "tpot.mean", "tpot.p99",
    "upstream.connect_time.mean", "upstream.time.mean", "upstream.time.p99", "proxy.time.mean", "stage.time_share",
    "request.failure_share", "request.failure_time", "request.failure_rate", "timeout.limit", "timeout.share",
    "client.timeout_limit", "client.timeout_share", "upstream.retry_share", "upstream.error_ratio", "retry.share",
    "start.after_pause", "start.after_pause_ratio", "start.pauses", "replica.load_ratio", "replica.latency_ratio",
    "gateway.timeout_rate", "gateway.reset_rate", "gateway.unavailable_rate", ERROR_LINE,
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.access_log.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset((*SIGNALS, *BY_CHANCE)),
    is_requested=lambda request: False,  # the log collector reads the files of `--log`: a pipe can be read only once
    reader=_reader,
    option="--log FILE (an access log)",
    cost="reads a file",
    only_positive=frozenset(BY_CHANCE),
)
