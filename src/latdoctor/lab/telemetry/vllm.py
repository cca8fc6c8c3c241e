"""A vLLM engine, step by step: continuous batching over blocks of a KV cache, with preemption by recomputation.

Each step runs one token of every running request and the prompts of admitted ones. A request that needs a block when
none is free preempts the newest one, which is recomputed. Queues and preemptions result from the load alone.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latdoctor.lab.telemetry.exposition import ExpositionWriter

BLOCK = 16  # tokens in a block
E2E = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_STEP = 0.021  # seconds of a step with few requests
_PER_REQUEST = 0.00006  # added per running request
_PER_TOKEN = 0.000012  # added per prompt token
_SEQUENCES = 256  # maximum of running requests
_STEP_TOKENS = 8192  # maximum of prompt tokens per step


@dataclass(frozen=True, slots=True)
class Engine:
    """The load and the cache. `blocks` is the size of the cache; lengths are means in tokens."""

    rate: float  # requests per second
    before: float  # the same, before the incident
    onset: float  # seconds from the change to the first page
    blocks: int
    prompt: float
    output: float


def capacity(blocks: int, prompt: float, output: float) -> float:
    """Requests per second that a cache of `blocks` supports: a request occupies its blocks until it is complete."""
    held = blocks * BLOCK / (prompt + output / 2)
    return held / (output * (_STEP + _PER_REQUEST * held) + held * prompt * _PER_TOKEN)


@dataclass(slots=True)
class _Request:
    arrived: float
    prompt: int
    output: int
    generated: int = 0
    held: int = 0  # blocks
    first: float | None = None
    started: float | None = None
    last: float = 0.0


@dataclass(slots=True)
class BucketCounts:
    """Counts per bucket, with one for values above the last bound."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def age(self, times: int) -> None:
        """Multiplies all counts by `times`, as after a long uptime."""
        self.counts = [count * times for count in self.counts]
        self.total *= times


@dataclass(slots=True)
class EngineCounters:
    """The engine's counters and current state."""

    e2e: BucketCounts = field(default_factory=lambda: BucketCounts(E2E))
    ttft: BucketCounts = field(default_factory=lambda: BucketCounts(TTFT))
    itl: BucketCounts = field(default_factory=lambda: BucketCounts(ITL))
    queued: BucketCounts = field(default_factory=lambda: BucketCounts(E2E))
    inference: BucketCounts = field(default_factory=lambda: BucketCounts(E2E))
    prompts: BucketCounts = field(default_factory=lambda: BucketCounts(TOKENS))
    outputs: BucketCounts = field(default_factory=lambda: BucketCounts(TOKENS))
    iterations: BucketCounts = field(default_factory=lambda: BucketCounts(ITERATION))
    prompt_tokens: int = 0
    output_tokens: int = 0
    stopped: int = 0
    lengthy: int = 0
    preemptions: int = 0
    running: int = 0
    waiting: int = 0
    usage: float = 0.0

    def age(self, times: int) -> None:
        for _, _, histogram in _histograms(self):
            histogram.age(times)
        self.prompt_tokens *= times
        self.output_tokens *= times
        self.stopped *= times
        self.lengthy *= times


class EngineSimulation:
    """A simulated engine. `at` advances it and returns its counters."""

    def __init__(self, rng: random.Random, engine: Engine) -> None:
        self._rng = rng
        self.engine = engine
        self.rate = engine.before
        self.counters = EngineCounters()
        self.now = 0.0
        self._next = 0.0
        self._free = engine.blocks
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []

    def at(self, moment: float) -> EngineCounters:
        while self.now < moment:
            self._arrive()
            self._step()
        counters = self.counters
        counters.running, counters.waiting = len(self._running), len(self._waiting)
        counters.usage = 1 - self._free / self.engine.blocks
        return counters

    def _arrive(self) -> None:
        rng, engine = self._rng, self.engine
        while self._next <= self.now:
            prompt = min(6_000, max(8, int(rng.lognormvariate(0, 0.7) * engine.prompt * 0.78)))
            output = min(2_000, max(4, int(rng.lognormvariate(0, 0.6) * engine.output * 0.84)))
            self._waiting.append(_Request(self._next, prompt, output))
            self._next += rng.expovariate(self.rate)

    def _step(self) -> None:
        prompts = sum(self._admit())
        decoding = len(self._running)
        if not decoding:
            self.now = max(self.now, self._next)
            return
        seconds = _STEP + decoding * _PER_REQUEST + prompts * _PER_TOKEN
        self.now += seconds * self._rng.uniform(0.96, 1.06)
        self.counters.iterations.add(float(decoding + prompts))
        for request in tuple(self._running):
            if request.held and not self._grow(request):
                continue
            if request.held:
                self._token(request)

    def _admit(self) -> Iterator[int]:
        """Admits requests while their tokens fit; yields the tokens of each."""
        budget = _STEP_TOKENS
        while self._waiting and len(self._running) < _SEQUENCES:
            request = self._waiting[0]
            tokens = request.prompt + request.generated
            blocks = -(-tokens // BLOCK)
            if tokens > budget or blocks > self._free:
                return
            self._waiting.popleft()
            if request.started is None:
                request.started = self.now
                self.counters.queued.add(self.now - request.arrived)
            self.counters.prompt_tokens += tokens
            self._free -= blocks
            request.held = blocks
            budget -= tokens
            self._running.append(request)
            yield tokens

    def _grow(self, request: _Request) -> bool:
        """Reserves one more token; False where the request itself was preempted."""
        if request.held * BLOCK > request.prompt + request.generated:
            return True
        while self._free == 0:
            victim = self._running.pop()
            self._free += victim.held
            victim.held = 0
            self._waiting.appendleft(victim)
            self.counters.preemptions += 1
            if victim is request:
                return False
        self._free -= 1
        request.held += 1
        return True

    def _token(self, request: _Request) -> None:
        counters = self.counters
        if request.first is None:
            request.first = self.now
            counters.ttft.add(self.now - request.arrived)
        else:
            counters.itl.add(self.now - request.last)
        request.last = self.now
        request.generated += 1
        counters.output_tokens += 1
        if request.generated < request.output:
            return
        self._running.remove(request)
        self._free += request.held
        request.held = 0
        counters.e2e.add(self.now - request.arrived)
        counters.inference.add(self.now - (request.started or request.arrived))
        counters.prompts.add(float(request.prompt))
        counters.outputs.add(float(request.generated))
        if self._rng.random() < 0.88:
            counters.stopped += 1
        else:
            counters.lengthy += 1


_HEALTHY = 30.0  # seconds simulated before the incident
_PAST = 300  # factor for the counters of that time


def pages(rng: random.Random, engine: Engine, moments: Sequence[float], model: str) -> Iterator[bytes]:
    """The page at each of `moments`, seconds from the first, after a long healthy uptime."""
    run = EngineSimulation(rng, engine)
    run.at(_HEALTHY).age(_PAST)
    run.rate = engine.rate
    for moment in moments:
        yield page(run.at(_HEALTHY + engine.onset + moment), model, engine.blocks)


def page(counters: EngineCounters, model: str, blocks: int) -> bytes:
    writer = ExpositionWriter({"engine": "0", "model_name": model})
    _state(writer, counters, blocks)
    _counters(writer, counters)
    for name, message, histogram in _histograms(counters):
        writer.histogram(f"vllm:{name}", message, histogram.bounds, histogram.counts, histogram.total)
    return writer.text()


def _state(writer: ExpositionWriter, counters: EngineCounters, blocks: int) -> None:
    for name, message, value in (
        ("num_requests_running", "Number of requests in model execution batches.", counters.running),
        ("num_requests_waiting", "Number of requests waiting to be processed.", counters.waiting),
        ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", counters.usage),
    ):
        writer.single(f"vllm:{name}", "gauge", message, value)
    config = {
        "block_size": str(BLOCK),
        "cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.9",
        "num_gpu_blocks": str(blocks),
    }
    writer.single("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", 1.0, config)


def _counters(writer: ExpositionWriter, counters: EngineCounters) -> None:
    hits = counters.prompt_tokens * 11 // 50
    queries = "Prefix cache queries, in terms of number of queried tokens."
    for name, message, value in (
        ("num_preemptions", "Cumulative number of preemption from the engine.", counters.preemptions),
        ("prompt_tokens", "Number of prefill tokens processed.", counters.prompt_tokens),
        ("generation_tokens", "Number of generation tokens processed.", counters.output_tokens),
        ("prefix_cache_queries", queries, counters.prompt_tokens),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", hits),
    ):
        writer.single(f"vllm:{name}_total", "counter", message, float(value))
    writer.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
    ended = {"stop": counters.stopped, "length": counters.lengthy, "abort": counters.stopped // 9_000}
    for reason, count in ended.items():
        writer.sample("vllm:request_success_total", float(count), {"finished_reason": reason})


def _histograms(counters: EngineCounters) -> tuple[tuple[str, str, BucketCounts], ...]:
    return (
        ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", counters.iterations),
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", counters.ttft),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", counters.itl),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", counters.e2e),
        ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", counters.queued),
        ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", counters.inference),
        ("request_prompt_tokens", "Number of prefill tokens processed.", counters.prompts),
        ("request_generation_tokens", "Number of generation tokens processed.", counters.outputs),
    )
