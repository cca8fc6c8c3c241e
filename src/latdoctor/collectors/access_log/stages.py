"""The stages of a request that request logs tell apart, and the signals of their times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RequestStage(StrEnum):
    """A part of a request's time. The value is the label `stage` of `request.stage_time`."""

    RECEIVE = "receive"  # until the whole request has arrived
    QUEUE = "queue"
    PREPARE = "prepare"  # validation, tokenization, preprocessing
    COMPUTE = "compute"
    EXPLAIN = "explain"
    POSTPROCESS = "postprocess"
    FIRST_TOKEN = "first token"  # noqa: S105 — from the arrival of the request, so it overlaps the others
    CONNECT = "upstream connect"
    UPSTREAM = "upstream"  # the server behind a proxy
    PROXY = "proxy"  # the proxy itself
    SEND = "send"  # of the answer to the client


@dataclass(frozen=True, slots=True)
class StageSignals:
    """`mean` and `p99`: the signals of its time; empty if the catalogue has none. `in_total`: a part of the latency
    that overlaps no other, so that shares of it can be compared.
    """

    mean: str = ""
    p99: str = ""
    in_total: bool = True


SIGNALS_OF: dict[str, StageSignals] = {
    RequestStage.RECEIVE: StageSignals("body.time.mean"),
    RequestStage.QUEUE: StageSignals("queue.time.mean", "queue.time.p99"),
    RequestStage.PREPARE: StageSignals("preprocess.time.mean"),
    RequestStage.COMPUTE: StageSignals("compute.time.mean", "compute.time.p99"),
    RequestStage.EXPLAIN: StageSignals(),
    RequestStage.POSTPROCESS: StageSignals("postprocess.time.mean"),
    RequestStage.FIRST_TOKEN: StageSignals("ttft.mean", "ttft.p99", in_total=False),
    RequestStage.CONNECT: StageSignals("upstream.connect_time.mean", in_total=False),
    RequestStage.UPSTREAM: StageSignals("upstream.time.mean", "upstream.time.p99"),
    RequestStage.PROXY: StageSignals("proxy.time.mean"),
    RequestStage.SEND: StageSignals(),
}


def with_own_time(stages: dict[str, float], total: float | None) -> tuple[tuple[str, float], ...]:
    """The stages of a proxied request, with PROXY: what its total exceeds the upstream's time by, if both are known."""
    upstream = stages.get(RequestStage.UPSTREAM)
    if upstream is not None and total is not None and RequestStage.PROXY not in stages and total >= upstream:
        stages = {**stages, RequestStage.PROXY: total - upstream}
    return tuple(stages.items())
