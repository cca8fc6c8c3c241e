"""Counts what the worker computes."""

from __future__ import annotations

from collections.abc import Callable

from latdoctor.lab.server.metrics import Metrics
from latdoctor.lab.server.prediction import Prediction
from latdoctor.lab.server.work import Batch


class BatchCounts:
    """The worker's Watcher: histograms of batches, the cost model's lessons, and how many threads torch may use."""

    def __init__(self, metrics: Metrics, prediction: Prediction, torch_threads: Callable[[], int]) -> None:
        self.torch_threads = 0
        self._metrics = metrics
        self._prediction = prediction
        self._read_threads = torch_threads

    def started(self, batch: Batch, now: float) -> None:
        self._prediction.started(batch, now)
        for work in batch.works:
            self._metrics.queue_wait[work.lane].observe(now - work.arrived)

    def cut(self) -> None:
        self._prediction.abandoned()  # what one part takes says nothing about the whole

    def finished(self, batch: Batch, started: float, now: float, padded_tokens: int) -> None:
        self._prediction.finished(now)
        seen = self._metrics
        seen.forward_seconds.observe(now - started)
        seen.worker_busy.inc(now - started)
        seen.batch_size.observe(batch.size)
        seen.batch_tokens.observe(batch.tokens)
        seen.batch_padded.observe(padded_tokens)
        seen.released.of(batch.reason).inc()
        seen.forward_calls.inc()
        seen.tokens.inc(batch.tokens)
        seen.padded_tokens.inc(padded_tokens)
        if batch.size == 1:
            seen.alone_batches.inc()
            seen.alone_tokens.inc(batch.tokens)
        else:
            seen.shared_longest.observe(max(work.tokens for work in batch.works))

    def sampled(self) -> None:
        self.torch_threads = self._read_threads()  # it is a thread's own number: asked where the work is done
