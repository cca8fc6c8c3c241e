"""A bandit that tunes the batch wait, beside the controller's other knobs: a row of bench/control.py.

Thompson sampling over a few waits: each arm has a normal posterior of its mean cost, older windows count less, and the
arm with the lowest draw serves the next window.
"""

from __future__ import annotations

import math
import random
from typing import Any

from bench.control_simulation import FeedbackTuner
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.control.load_window import Measurement

ARMS = (0.0, 2.0, 5.0, 10.0, 20.0)  # ms
_FORGET = 0.98  # weight of the past at each window
_SPREAD = 0.1  # standard deviation of one window's cost
_FEWEST = 20  # requests in a window


class WaitBandit:
    """The feedback controller with its wait left to Thompson sampling."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._others = FeedbackTuner()
        self._weight = dict.fromkeys(ARMS, 0.0)
        self._cost = dict.fromkeys(ARMS, 0.0)  # sums
        self._arm, self._until = 0.0, -math.inf

    def patch(self, now: float, config: ServerConfig, found: Measurement) -> dict[str, dict[str, Any]] | None:
        # The controller sees a wait of 0 and may not raise it.
        hidden = patched(config, {"batching": {"max_wait_ms": 0.0}, "control": {"max_wait_ms": 0.0}})
        patch = self._others.patch(now, hidden, found) or {}
        if now >= self._until:
            self._learn(config, found)
            self._arm = min(ARMS, key=self._draw)
            self._until = now + 2 * config.control.window_ms / 1000  # one window to settle, one to be measured
            if self._arm != config.batching.max_wait_ms:
                patch = {**patch, "batching": {**patch.get("batching", {}), "max_wait_ms": self._arm}}
        return patch or None

    def _learn(self, config: ServerConfig, found: Measurement) -> None:
        if found.finished < _FEWEST:
            return
        for arm in ARMS:
            self._weight[arm] *= _FORGET
            self._cost[arm] *= _FORGET
        self._weight[self._arm] += 1
        self._cost[self._arm] += found.missed / found.finished + 0.2 * found.p99 / (config.control.slo_ms / 1000)

    def _draw(self, arm: float) -> float:
        """A draw of the arm's mean cost; the prior counts as half a window of cost 0.2."""
        weight = self._weight[arm] + 0.5
        return self._chance.gauss((self._cost[arm] + 0.5 * 0.2) / weight, _SPREAD / math.sqrt(weight))
