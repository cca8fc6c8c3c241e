"""Admission control: refuses requests whose predicted answer is later than their deadline."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable

from msgspec import Struct

from latdoctor.lab.server.schedulers.batch import Batch, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel


class Admission(Struct, frozen=True):
    """Whether a request is let in. `predicted`: seconds until its answer, None while the cost is unknown."""

    admitted: bool
    predicted: float | None
    retry_after: int | None  # whole seconds for the Retry-After header, where it is not let in


def admission(work: Work, now: float, pending: Iterable[Work], model: CostModel) -> Admission:
    """Judges `work` by its deadline and by what waits already (with lanes: in its own lane).

    An idle server always lets in: else a model that learnt a slow minute would refuse everybody, and with nothing
    to compute it would never learn better.
    """
    waiting = list(pending)
    wait, cost = model.predicted_wait(now, waiting), model.cost
    if wait is None or cost is None:
        return Admission(admitted=True, predicted=None, retry_after=None)
    predicted = wait + cost.seconds(1, work.tokens)
    late = -math.inf if work.deadline is None else now + predicted - work.deadline
    if late <= 0 or not (waiting or model.is_busy):
        return Admission(admitted=True, predicted=predicted, retry_after=None)
    return Admission(admitted=False, predicted=predicted, retry_after=max(1, math.ceil(late)))


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
