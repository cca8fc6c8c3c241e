"""The server's cost model, shared between the worker that teaches it and the event loop that asks it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from latdoctor.lab.server.schedulers.admission import Admission, admission
from latdoctor.lab.server.schedulers.cost_model import CostModel
from latdoctor.lab.server.work import Batch, Work


class Prediction:
    """A cost model behind a lock that is held for microseconds. `model` itself is for the scheduler, on the worker."""

    def __init__(self) -> None:
        self.model = CostModel()
        self._lock = threading.Lock()

    def started(self, batch: Batch, now: float) -> None:
        with self._lock:
            self.model.started(batch, now)

    def finished(self, now: float) -> None:
        with self._lock:
            self.model.finished(now)

    def abandoned(self) -> None:
        with self._lock:
            self.model.abandoned()

    def admission(self, work: Work, now: float, pending: Iterable[Work]) -> Admission:
        with self._lock:
            return admission(work, now, pending, self.model)
