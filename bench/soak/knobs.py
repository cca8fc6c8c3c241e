"""Changes the live configuration of a server under load, and sends changes that must be refused."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from random import Random
from typing import Protocol

from latdoctor.errors import OperationError
from latdoctor.lab.server.config import (
    BatchingConfig,
    GovernanceConfig,
    MemoryConfig,
    QueueConfig,
    ServerConfig,
    SessionsConfig,
)

Patch = Mapping[str, Mapping[str, object]]
MOST_SESSIONS = 200

# Short times to live and small limits: entries expire many times during the run.
START = ServerConfig(sessions=SessionsConfig(ttl_s=20, window_turns=4, max_sessions=MOST_SESSIONS), queue=QueueConfig())

CHANGES: tuple[Patch, ...] = (
    *({"batching": {"scheduler": name}} for name in (
        "token-budget", "long-alone", "count-only", "duration-bounded", "length-buckets", "no-timer", "single",
    )),
    {"batching": {"max_wait_ms": 20, "adaptive_wait": True}},
    {"batching": {"max_batch_tokens": 64, "max_batch_requests": 4}},
    {"batching": {"max_batch_tokens": 1024, "max_batch_requests": 32, "max_wait_ms": 0, "adaptive_wait": False}},
    {"memory": {"glibc": "returning"}},
    {"memory": {"glibc": "default", "reuse_buffers": False}},
    {"memory": {"glibc": "pooled", "reuse_buffers": True}},
    {"memory": {"compaction_ms": 500}},
    {"governance": {"lanes": True}},
    {"governance": {"standby": "on"}},
    {"governance": {"standby": "auto", "breaker_p99_ms": 300}},
    {"governance": {"standby": "off", "breaker_p99_ms": 200, "breaker_open_ms": 500}},
    {"governance": {"fallback_ms": 50}},
    {"governance": {"retry_budget": 0.1}},
    {"governance": {"lanes": False, "standby": "off", "breaker_p99_ms": 0, "fallback_ms": 0, "retry_budget": 0}},
    {"queue": {"deadline_ms": 400}},
    {"queue": {"max_requests": 8}},
    {"queue": {"max_tokens": 600}},
    {"queue": {"deadline_ms": 0, "max_requests": 2000, "max_tokens": 200_000}},
    {"sessions": {"max_sessions": 50, "ttl_s": 2}},
    {"sessions": {"max_sessions": MOST_SESSIONS, "ttl_s": 20, "window_turns": 8}},
    {"model": {"version": "v2"}},
    {"model": {"version": "v1"}},
    {"model": {"attention": "naive"}},
    {"model": {"attention": "sdpa"}},
)  # fmt: skip

# Each is answered with this status, and changes nothing.
REFUSED: tuple[tuple[Patch, int], ...] = (
    ({"queue": {"max_requests": -1}}, 422),
    ({"queue": {"max_requests": 1e300}}, 422),
    ({"queue": {"deadline_ms": "soon"}}, 422),
    ({"batching": {"scheduler": "fastest"}}, 422),
    ({"nothing": {"at": "all"}}, 422),
    ({"model": {"layers": 2}}, 409),
)


class Tuned(Protocol):
    """The configuration interface of a server."""

    def config(self) -> tuple[ServerConfig, str]: ...
    def configure(self, patch: Patch) -> None: ...


class Turner:
    """Makes one change after the other, in an order from the seed."""

    def __init__(self, server: Tuned, seed: int, every: float) -> None:
        self.turned = 0
        self.refused = 0
        self.wrong: list[str] = []
        self._server, self._every = server, every
        self._chance = Random(f"{seed}/knobs")

    @property
    def round_seconds(self) -> float:
        """The seconds until each change has been made once; a tenth is for making it."""
        return 1.1 * self._every * len(CHANGES)

    def back(self) -> None:
        """Restore the initial configuration. Raises OperationError."""
        groups = {
            "batching": BatchingConfig(),
            "memory": MemoryConfig(),
            "governance": GovernanceConfig(),
            "queue": QueueConfig(),
        }
        live = {group: {name: getattr(value, name) for name in _LIVE[group]} for group, value in groups.items()}
        self._server.configure(live)

    def turn(self, end: threading.Event) -> None:
        """Change the configuration until `end` is set."""
        changes: list[Patch] = []
        while not end.wait(self._every):
            changes = changes or self._chance.sample(CHANGES, len(CHANGES))
            try:
                self._server.configure(changes.pop())
                self.turned += 1
                self._refusal(*self._chance.choice(REFUSED))
            except OperationError as error:
                self.wrong.append(str(error))

    def _refusal(self, patch: Patch, status: int) -> None:
        _, before = self._server.config()
        try:
            self._server.configure(patch)
        except OperationError as error:
            if f"answered {status}" not in str(error):
                self.wrong.append(f"{patch} should be answered {status}: {error}")
        else:
            self.wrong.append(f"{patch} was accepted")
        if self._server.config()[1] != before:
            self.wrong.append(f"{patch} was refused but changed something")
        self.refused += 1


_LIVE = {
    "batching": ("scheduler", "max_batch_requests", "max_batch_tokens", "max_wait_ms", "adaptive_wait"),
    "memory": ("glibc", "compaction_ms", "reuse_buffers"),
    "governance": ("breaker_p99_ms", "breaker_open_ms", "lanes", "fallback_ms", "standby", "retry_budget"),
    "queue": ("max_requests", "max_tokens", "deadline_ms"),
}
