"""Measurements and a controller whose time a test sets."""

from __future__ import annotations

from typing import Any

from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.control.feedback import FeedbackController, KnobChange
from latdoctor.lab.server.control.load_window import Measurement

WINDOW = 2.0


def measured(at: float, **fields: Any) -> Measurement:
    """A healthy window of 300 answers that ended at `at`; `fields` differ."""
    usual = {
        "newest": at, "arrivals": 300, "offered_tokens": 30_000, "answers": 300, "p50": 0.05, "p99": 0.2, "busy": 0.6,
        "batches": 100, "batch_size": 3.0, "longest_batch": 0.03, "fixed_share": 0.05, "full_batch_fixed": 0.02,
    }  # fmt: skip
    return Measurement(at, WINDOW, **{**usual, **fields})


class Controlled:
    """A controller and the configuration that it changes; `control` are its settings."""

    def __init__(self, patch: dict[str, dict[str, Any]] | None = None, **control: Any) -> None:
        self.now = 100.0
        self.controller = FeedbackController(lambda: 1e9 + self.now)
        self.config = patched(ServerConfig(), patch or {})
        self.set(control={"mode": "on", "slo_ms": 500, **control})

    def set(self, **patch: dict[str, Any]) -> None:
        """The operator changes the configuration."""
        self.config = patched(self.config, patch)

    def decide(self, after: float = 10.0, **fields: Any) -> KnobChange | None:
        """One decision, `after` seconds later, by `measured(now, **fields)`; its change is applied."""
        self.now += after
        change = self.controller.decide(self.now, self.config, measured(self.now, **fields))
        if change is not None:
            self.config = patched(self.config, change.patch)
        return change

    def armed(self) -> Controlled:
        """With admission armed, and the step verified."""
        assert self.decide() is not None
        assert self.decide() is None
        return self

    @property
    def deadline(self) -> float:
        return self.config.queue.deadline_ms
