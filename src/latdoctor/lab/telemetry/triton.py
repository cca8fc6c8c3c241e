"""A simulated Triton server under load, and its metrics pages.

A fluid model: requests arrive at random, instances process them in batches, the rest waits. Latency, queue and counters
are therefore consistent for any slowdown.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.lab.telemetry.exposition import ExpositionWriter

_PAST = 86_400  # seconds of healthy uptime


@dataclass(frozen=True, slots=True)
class Service:
    """The instances of one model. Seconds; `slower`: the slowdown of each instance.

    `copying`: the share of compute time for input copies; `slower_copies`: the slowdown of these.
    """

    model: str
    rate: float  # requests per second
    compute: float  # of a batch, when healthy
    batch: float  # mean batch size
    slower: tuple[float, ...]  # one for each instance
    copying: float = 0.004
    slower_copies: float = 1.0
    failures: float = 0.0  # share of requests
    onset: float = 40.0  # seconds from the start of the fault to the first page


@dataclass(slots=True)
class _TritonCounters:
    """The counters. Times in microseconds, as Triton counts them."""

    requests: int = 0
    failed: int = 0
    batches: int = 0
    queue: float = 0.0
    copy_in: float = 0.0
    infer: float = 0.0
    waiting: float = 0.0
    p50: float = 0.0
    p99: float = 0.0


def pages(
    rng: random.Random, service: Service, moments: Sequence[float], gpus: Sequence[tuple[str, float]]
) -> list[bytes]:
    """The page at each of `moments`, seconds from the first; `gpus` are uuid and utilisation."""
    state = _past(service)
    clock = -service.onset
    found = []
    for moment in moments:
        while clock < moment:
            step = min(1.0, moment - clock)
            _advance(rng, service, state, step)
            clock += step
        found.append(_page(rng, service, state, gpus))
    return found


def _past(service: Service) -> _TritonCounters:
    requests = int(service.rate * 0.7 * _PAST)
    compute = service.compute * 1e6
    return _TritonCounters(
        requests=requests,
        failed=requests // 90_000,
        batches=int(requests / service.batch),
        queue=requests * compute * 0.22,
        copy_in=requests * compute * service.copying,
        infer=requests * compute * (1 - service.copying),
    )


def _advance(rng: random.Random, service: Service, state: _TritonCounters, seconds: float) -> None:
    """One step: Poisson arrivals; a free instance takes the next batch, so slow instances take fewer."""
    mean = service.rate * seconds
    arrived = max(0, round(rng.gauss(mean, mean**0.5)))
    times = [_time(service, slower) for slower in service.slower]
    capacity = sum(service.batch / time for time in times) * seconds
    present = state.waiting + arrived
    done = min(present, capacity)
    state.waiting = present - done
    load = min(0.97, arrived / capacity) if capacity else 0.97
    # Waits for the running batch, which grows with load, and for the requests already queued.
    mean_time = len(times) / sum(1 / time for time in times)
    wait = mean_time * (0.08 + 0.5 * load**3 / (1 - load) ** 0.5) + state.waiting / capacity * seconds
    wait *= rng.uniform(0.93, 1.07)
    served = round(done)
    failed = sum(rng.random() < service.failures for _ in range(served)) if service.failures else 0
    good = served - failed
    state.requests += good
    state.failed += failed
    state.batches += max(1, round(good / service.batch)) if good else 0
    state.queue += good * wait * 1e6
    spent = sum(service.batch / time * seconds / capacity * time for time in times) * 1e6
    copied = service.compute * service.copying * service.slower_copies * 1e6
    state.copy_in += good * copied
    state.infer += good * max(0.0, spent - copied)
    state.p50 = (wait * 0.8 + mean_time) * 1e6
    state.p99 = (wait * 2.6 + max(times) * 1.35) * 1e6


def _time(service: Service, slower: float) -> float:
    copies = service.copying * service.slower_copies
    return service.compute * ((1 - service.copying) * slower + copies)


_COUNTERS = (
    ("inference_count", "Number of inferences performed (does not include cached requests)"),
    ("inference_exec_count", "Number of model executions performed (does not include cached requests)"),
    ("inference_request_duration_us", "Cumulative inference request duration in microseconds"),
    ("inference_queue_duration_us", "Cumulative inference queuing duration in microseconds"),
    ("inference_compute_input_duration_us", "Cumulative compute input duration in microseconds"),
    ("inference_compute_infer_duration_us", "Cumulative compute inference duration in microseconds"),
    ("inference_compute_output_duration_us", "Cumulative inference compute output duration in microseconds"),
)


def _page(rng: random.Random, service: Service, state: _TritonCounters, gpus: Sequence[tuple[str, float]]) -> bytes:
    page = ExpositionWriter({"model": service.model, "version": "1"})
    message = "Number of successful inference requests, all batch sizes"
    page.single("nv_inference_request_success", "counter", message, state.requests)
    page.family("nv_inference_request_failure", "counter", "Number of failed inference requests, all batch sizes")
    for reason in ("OTHER", "CANCELED", "BACKEND", "REJECTED"):
        page.sample("nv_inference_request_failure", state.failed if reason == "BACKEND" else 0, {"reason": reason})
    out = state.infer * 0.004
    total = int(state.queue + state.copy_in + state.infer + out)
    values = (state.requests, state.batches, total, *map(int, (state.queue, state.copy_in, state.infer, out)))
    for (name, meaning), value in zip(_COUNTERS, values, strict=True):
        page.single(f"nv_{name}", "counter", meaning, value)
    waiting = "Instantaneous number of pending requests awaiting execution per-model."
    page.single("nv_inference_pending_request_count", "gauge", waiting, int(state.waiting + rng.uniform(0, 2)))
    _summary(page, state, total)
    for uuid, busy in gpus:
        page.sample("nv_gpu_utilization", round(busy, 2), {"gpu_uuid": uuid}, common=False)
    page.family("nv_cpu_utilization", "gauge", "CPU utilization rate [0.0 - 1.0]")
    page.sample("nv_cpu_utilization", round(rng.uniform(0.08, 0.3), 4), common=False)
    return page.text()


def _summary(page: ExpositionWriter, state: _TritonCounters, total: int) -> None:
    name = "nv_inference_request_summary_us"
    page.family(name, "summary", "Summary of inference request duration in microseconds (includes cached requests)")
    for quantile, value in ((0.5, state.p50), (0.9, state.p99 * 0.68), (0.95, state.p99 * 0.8), (0.99, state.p99)):
        page.sample(name, int(value), {"quantile": str(quantile)})
    page.sample(f"{name}_count", state.requests)
    page.sample(f"{name}_sum", total)
