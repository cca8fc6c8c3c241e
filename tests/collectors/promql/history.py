"""An hour of two vLLM replicas and their GPUs, as a Prometheus server keeps it; one of them goes bad on the way.

Replica b turns slow `BAD` seconds before the end: requests take 3 s in place of 0.4 s, and others wait. GPU 1 loses its
clock then. Replica c is scraped from `YOUNG` seconds before the end on. Samples come every 15 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

END = 1_795_000_000
HOUR, BAD, YOUNG, EVERY = 3600, 1200, 120, 15
BOUNDS = ("0.3", "0.5", "1.0", "2.5", "5.0", "+Inf")
BLANK = 9223372036854775794


@dataclass(frozen=True)
class Replica:
    """So many requests a second before and after the turn, and the bucket they fall into."""

    name: str
    rate: int = 4
    slow: bool = False
    first: int = END - HOUR


REPLICAS = (Replica("a"), Replica("b", slow=True), Replica("c", rate=2, first=END - YOUNG))


def openmetrics() -> str:
    """The hour in the format that `promtool tsdb create-blocks-from openmetrics` reads."""
    return "\n".join([*_families(), "# EOF", ""])


def _families() -> Iterator[str]:
    for family, kind, lines in (
        ("up", "gauge", _up()),
        ("vllm:num_requests_running", "gauge", _gauges("vllm:num_requests_running", 3, 8)),
        ("vllm:num_requests_waiting", "gauge", _gauges("vllm:num_requests_waiting", 0, 40)),
        ("vllm:request_success", "counter", _finished()),
        ("vllm:e2e_request_latency_seconds", "histogram", _latencies()),
        ("DCGM_FI_DEV_SM_CLOCK", "gauge", _gpus("DCGM_FI_DEV_SM_CLOCK", 1980, 1980, 600)),
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", _gpus("DCGM_FI_DEV_GPU_TEMP", 60, 61, 91)),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "gauge", _gpus("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", BLANK, 0, 0)),
    ):
        yield f"# TYPE {family} {kind}"
        yield from lines


def _times(first: int) -> range:
    return range(first, END + 1, EVERY)


def _target(replica: Replica) -> str:
    return f'job="vllm",instance="{replica.name}:8000"'


def _labels(replica: Replica) -> str:
    return f'{_target(replica)},model_name="org/llm",engine="0"'


def _bad(replica: Replica, time: int) -> bool:
    return replica.slow and time > END - BAD


def _up() -> Iterator[str]:
    for replica in REPLICAS:
        yield from (f"up{{{_target(replica)}}} 1 {time}" for time in _times(replica.first))
    yield from (f'up{{job="dcgm",instance="gpus:9400"}} 1 {time}' for time in _times(END - HOUR))
    yield from (f'up{{job="gone",instance="d:8000"}} {int(time < END - 600)} {time}' for time in _times(END - HOUR))


def _gauges(name: str, good: int, bad: int) -> Iterator[str]:
    for replica in REPLICAS:
        for time in _times(replica.first):
            yield f"{name}{{{_labels(replica)}}} {bad if _bad(replica, time) else good} {time}"


def _finished() -> Iterator[str]:
    """A restart of replica a half an hour before the end; aborted requests from the turn on, a counter born then."""
    for replica in REPLICAS:
        count = 1000
        for time in _times(replica.first):
            count = 0 if replica.name == "a" and time == END - 1800 else count + replica.rate * EVERY
            yield f'vllm:request_success_total{{{_labels(replica)},finished_reason="stop"}} {count} {time}'
    born = range(END - 150, END + 1, EVERY)
    for step, time in enumerate(born):
        yield f'vllm:request_success_total{{{_labels(REPLICAS[1])},finished_reason="abort"}} {100 + step} {time}'


def _latencies() -> Iterator[str]:
    name = "vllm:e2e_request_latency_seconds"
    for replica in REPLICAS:
        quick = slow = 0
        rows: dict[str, list[str]] = {bound: [] for bound in (*BOUNDS, "sum", "count")}
        for time in _times(replica.first):
            more = replica.rate * EVERY
            quick, slow = (quick, slow + more) if _bad(replica, time) else (quick + more, slow)
            for bound in BOUNDS:
                top = float(bound)
                seen = (quick if top >= 0.4 else 0) + (slow if top >= 3 else 0)
                rows[bound].append(f'{name}_bucket{{{_labels(replica)},le="{bound}"}} {seen} {time}')
            rows["sum"].append(f"{name}_sum{{{_labels(replica)}}} {0.4 * quick + 3 * slow} {time}")
            rows["count"].append(f"{name}_count{{{_labels(replica)}}} {quick + slow} {time}")
        for lines in rows.values():
            yield from lines


def _gpus(name: str, first: int, second: int, later: int) -> Iterator[str]:
    for gpu, before, after in ((0, first, first), (1, second, later)):
        labels = f'job="dcgm",instance="gpus:9400",gpu="{gpu}",UUID="GPU-{gpu}",modelName="NVIDIA H100"'
        for time in _times(END - HOUR):
            yield f"{name}{{{labels}}} {after if time > END - BAD else before} {time}"
