"""A small LSTM on the last steps, with torch on one thread: the same number of training steps for any history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from latdoctor.planning.forecast.features import Features
from latdoctor.planning.forecast.open_hours import OpenSeries
from latdoctor.planning.forecast.rate_series import FloatArray, IntArray

HIDDEN = 32
LENGTH = 16  # steps that it reads
BATCH = 128
RATE = 5e-3
_AT_ONCE = 4096  # origins predicted together


class _Net(nn.Module):
    """The state after LENGTH steps → the deviation at the target, in units of its spread."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(channels, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(steps)
        result: torch.Tensor = self.head(states[:, -1])
        return result[:, 0]


class LstmModel:
    """A network that is trained further with each call of `train`, on origins whose targets are known by then.

    Its inputs are scaled by the steps before `known`, at which the first training ends.
    """

    def __init__(self, series: OpenSeries, features: Features, known: int, seed: int = 0) -> None:
        self._features = features
        self._channels = _channels(series, features, known)
        self._scale: float = 1.0
        self._random = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._net = _Net(self._channels.shape[1])

    def train(self, targets: FloatArray, origins: IntArray, steps: int) -> None:
        """`steps` batches drawn from `origins`; the loss is the absolute error."""
        usable = origins >= LENGTH - 1
        origins, targets = origins[usable], targets[usable]
        wanted = np.sqrt(targets) - self._features.base[origins]
        self._scale = float(wanted.std()) or 1.0
        goal = torch.tensor(wanted / self._scale, dtype=torch.float32)
        optimiser = torch.optim.Adam(self._net.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.1)
        with _one_thread():
            for _ in range(steps):
                rows = self._random.integers(0, len(origins), min(BATCH, len(origins)))
                loss = nn.functional.l1_loss(self._net(self._windows(origins[rows])), goal[torch.from_numpy(rows)])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
                optimiser.step()
                schedule.step()

    def predict(self, origins: IntArray) -> FloatArray:
        parts = []
        with _one_thread(), torch.no_grad():
            for start in range(0, len(origins), _AT_ONCE):
                rows = np.maximum(origins[start : start + _AT_ONCE], LENGTH - 1)
                parts.append(self._net(self._windows(rows)).numpy().astype(float))
        root = self._features.base[origins] + np.concatenate(parts) * self._scale
        return np.square(np.maximum(root, 0.0))

    def _windows(self, origins: IntArray) -> torch.Tensor:
        places = origins[:, None] + np.arange(1 - LENGTH, 1)
        return torch.from_numpy(self._channels[places])


def _channels(series: OpenSeries, features: Features, known: int) -> npt.NDArray[np.float32]:
    """What it reads of each step: value, deviation, the usual value then and at the target, and the time of day."""
    count, ahead = len(features.root), series.ahead
    spread = float(features.root[:known].std()) or 1.0
    centre = float(features.root[:known].mean())
    columns = [(features.root - centre) / spread]
    if series.period:
        angle = 2 * np.pi * ((np.arange(count) + ahead + series.offset) % series.period) / series.period
        usual = (features.usual - centre) / spread
        columns += [features.deviation / spread, usual[:count], usual[ahead:], np.sin(angle), np.cos(angle)]
    return np.column_stack(columns).astype(np.float32)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small matrices gain nothing by threads, and the machine serves others meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
