"""Counters and histograms of the inference server. Every sample has the labels `replica` and `backend`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from latdoctor.lab.server.control.load_window import LoadWindow
from latdoctor.lab.server.schedulers.batch import Batch
from latdoctor.lab.server.schedulers.cost_model import CostModel
from latdoctor.lab.server.standby_model import ModelLoad
from latdoctor.lab.server.versions.model_registry import RefusalCode
from latdoctor.load.mix import BODY_SIZES, SECONDS, body_size

SIZES = (*map(float, range(1, 33)), 48.0, 64.0, 128.0)
TOKENS = tuple(float(bound) for n in range(4, 17) for bound in (2**n, 3 * 2 ** (n - 1)))
LENGTHS = tuple(float(bound) for n in range(2, 13) for bound in (2**n, 3 * 2 ** (n - 1)))

CONTENT_TYPE = CONTENT_TYPE_LATEST
_FROM_TO = "From a request's whole body to its answer's being handed to the network"
FIXED = ("replica", "backend")

# Known label values are shown from the start: a counter of 0 is more informative than a missing one.
STATUSES = ("200", "400", "413", "422", "429", "500", "503")
REASONS = ("full", "tokens", "waste", "idle", "age", "timeout", "alone", "arrival", "seconds", "bucket")
LANES = ("all", "short", "long")
SHED = ("queue-full", "deadline", "breaker", "retry-budget", "class-full")
REJECTED = ("malformed", "invalid", "empty", "too-large", "too-long", "slow-body")


class ServerMetrics:
    """The counters and histograms, with the two fixed labels filled in. Safe from every thread."""

    def __init__(self, replica: str, backend: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client leaves it untyped
        self.fixed = (replica, backend)
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests()
        self._stages()
        self._batches()
        self._runtime()
        self._loads()

    def _requests(self) -> None:
        self.requests = self.split_counter("ref_requests", "Requests answered, by HTTP status", "status", STATUSES)
        self.arrivals = self.counter("ref_arrivals", "Requests that came in")
        self.retry_arrivals = self.counter("ref_retry_arrivals", "Requests that came in again (attempt above 0)")
        self.shed = self.split_counter("ref_requests_shed", "Requests turned away for lack of room", "reason", SHED)
        self.rejected = self.split_counter("ref_rejected", "Requests that made no sense", "reason", REJECTED)
        self.cancelled = self.counter("ref_requests_cancelled", "Requests whose client went before the answer")
        self.fallback = self.counter("ref_fallback", "Requests answered without the model, for it took too long")
        self.features_trimmed = self.counter(
            "ref_features_trimmed", "Requests computed with fewer features than they have"
        )
        self.standby = self.counter("ref_standby_requests", "Requests answered by the light model")
        self.body_seconds = self.histogram(
            "ref_body_seconds", "From a request's first line to its whole body, which no other time here holds", SECONDS
        )
        self.request_seconds = self.histogram("ref_request_seconds", _FROM_TO, SECONDS)
        self._by_size = self.family("ref_latency_by_size_seconds", _FROM_TO, ("size",), SECONDS)
        self._of_size = {size: self._by_size.labels(*self.fixed, size) for size in BODY_SIZES}
        self.input_tokens = self.histogram("ref_input_tokens", "Length of a request without its history", LENGTHS)
        self.long_inputs = self.counter("ref_long_inputs", "Requests that count as long")
        self.session_hits = self.counter("ref_session_hits", "Requests whose conversation was known")
        self.session_misses = self.counter("ref_session_misses", "Requests whose conversation was not known")
        self.history_tokens = self.histogram("ref_session_history_tokens", "History computed with a turn", LENGTHS)
        self.dependency_hits = self.counter("ref_dependency_hits", "Answers of the dependency that had the feature")
        self.dependency_errors = self.counter("ref_dependency_errors", "Requests to the dependency that failed")
        self.dependency_timeouts = self.counter("ref_dependency_timeouts", "Those of them that timed out")

    def _stages(self) -> None:
        message = {
            "preprocess": "Text into tokens, audio into frames",
            "session": "Reading the conversation's history",
            "dependency": "Waiting for the service that is asked for each request",
            "postprocess": "From the model's scores to an intent",
        }
        self.stages = {name: self.histogram(f"ref_{name}_seconds", text, SECONDS) for name, text in message.items()}
        self.lock_wait = self.histogram("ref_lock_wait_seconds", "Waiting for the lock of the shared state", SECONDS)

    def _batches(self) -> None:
        self._queue_wait = self.family("ref_queue_wait_seconds", "From queued to batched", ("lane",), SECONDS)
        self.queue_wait = {lane: self._queue_wait.labels(*self.fixed, lane) for lane in LANES}
        self.forward_seconds = self.histogram("ref_forward_seconds", "Computing one batch", SECONDS)
        self.batch_size = self.histogram("ref_batch_size", "Requests in a batch", SIZES)
        self.batch_tokens = self.histogram("ref_batch_tokens", "Tokens of a batch that were asked for", TOKENS)
        self.batch_padded = self.histogram("ref_batch_padded_tokens", "Tokens of a batch with padding", TOKENS)
        self.released = self.split_counter("ref_batch_release", "Batches, by why they were released", "reason", REASONS)
        self.forward_calls = self.counter("ref_forward_calls", "Batches computed")
        self.tokens = self.counter("ref_tokens", "Tokens computed that were asked for")
        self.padded_tokens = self.counter("ref_padded_tokens", "Tokens computed, padding included")
        self.alone_batches = self.counter("ref_alone_batches", "Batches of one request")
        self.alone_tokens = self.counter("ref_alone_tokens", "Tokens in batches of one request")
        self.shared_longest = self.histogram(
            "ref_shared_batch_longest_tokens", "The longest input of each batch of several requests", LENGTHS
        )
        self.worker_busy = self.counter("ref_worker_busy_seconds", "Wall time the worker spent computing")

    def _runtime(self) -> None:
        self.gc_pause = self.histogram("ref_gc_pause_seconds", "Pauses of Python's garbage collector", SECONDS)
        self.loop_lag = self.histogram("ref_loop_lag_seconds", "How late a 50 ms heartbeat of the event loop", SECONDS)
        self._by_version = self.family("ref_latency_by_version_seconds", _FROM_TO, ("model_version",), SECONDS)

    def _loads(self) -> None:
        self.model_reloads = self.counter("ref_model_reloads", "Versions that were loaded and deployed")
        self.model_refusals = self.split_counter(
            "ref_model_reloads_refused", "Versions that were not deployed, by why", "reason", tuple(RefusalCode)
        )
        self.model_load_seconds = self.histogram(
            "ref_model_load_seconds", "From the order to load a version to its service, or its refusal", SECONDS
        )

    def model_load(self, load: ModelLoad) -> None:
        self.model_load_seconds.observe(load.seconds)
        if load.refused:
            self.model_refusals.of(load.refused).inc()
        else:
            self.model_reloads.inc()

    def latency_of_version(self, version: str, seconds: float) -> None:
        self._by_version.labels(*self.fixed, version).observe(seconds)

    def latency_of_size(self, content_bytes: int, seconds: float) -> None:
        self._of_size[body_size(content_bytes)].observe(seconds)

    def counter(self, name: str, message: str) -> Counter:
        child: Counter = Counter(name, message, FIXED, registry=self.registry).labels(*self.fixed)
        return child

    def histogram(self, name: str, message: str, buckets: tuple[float, ...]) -> Histogram:
        child: Histogram = self.family(name, message, (), buckets).labels(*self.fixed)
        return child

    def family(self, name: str, message: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, message, (*FIXED, *labels), buckets=buckets, registry=self.registry)

    def split_counter(self, name: str, message: str, label: str, known: Iterable[str]) -> LabelledCounter:
        split = LabelledCounter(Counter(name, message, (*FIXED, label), registry=self.registry), self.fixed)
        for value in known:
            split.of(value)
        return split

    def page(self) -> bytes:
        """The page in Prometheus text format. Milliseconds of work: never on the event loop."""
        return generate_latest(self.registry)


class LabelledCounter:
    """A counter with one label of its own."""

    def __init__(self, family: Counter, fixed: tuple[str, str]) -> None:
        self._family = family
        self._fixed = fixed

    def of(self, value: str) -> Counter:
        child: Counter = self._family.labels(*self._fixed, value)
        return child


class BatchMetrics:
    """The worker's Watcher: histograms of batches, the cost model's lessons, and how many threads torch may use."""

    def __init__(
        self, metrics: ServerMetrics, cost_model: CostModel, torch_threads: Callable[[], int], load: LoadWindow
    ) -> None:
        self.torch_threads = 0
        self._load = load
        self._metrics = metrics
        self._cost_model = cost_model
        self._read_threads = torch_threads

    def started(self, batch: Batch, now: float) -> None:
        self._cost_model.started(batch, now)
        for work in batch.works:
            self._metrics.queue_wait[work.lane].observe(now - work.arrived)

    def cut(self) -> None:
        self._cost_model.abandoned()  # the time of one part does not predict the whole

    def finished(self, batch: Batch, started: float, now: float, padded_tokens: int) -> None:
        self._cost_model.finished(now)
        self._load.computed(now, now - started, batch.size, batch.reason)
        metrics = self._metrics
        metrics.forward_seconds.observe(now - started)
        metrics.worker_busy.inc(now - started)
        metrics.batch_size.observe(batch.size)
        metrics.batch_tokens.observe(batch.tokens)
        metrics.batch_padded.observe(padded_tokens)
        metrics.released.of(batch.reason).inc()
        metrics.forward_calls.inc()
        metrics.tokens.inc(batch.tokens)
        metrics.padded_tokens.inc(padded_tokens)
        if batch.size == 1:
            metrics.alone_batches.inc()
            metrics.alone_tokens.inc(batch.tokens)
        else:
            metrics.shared_longest.observe(max(work.tokens for work in batch.works))

    def sampled(self) -> None:
        self.torch_threads = self._read_threads()  # each thread has its own number
