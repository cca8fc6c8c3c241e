"""Accepted requests that wait for the worker. Thread-safe."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from latdoctor.lab.server.request_context import ModelAnswer, ModelInput
from latdoctor.lab.server.schedulers.batch import Work


@dataclass(frozen=True, slots=True)
class Ticket:
    """An accepted request: its scheduling data, its model input and the future of its answer."""

    work: Work
    input: ModelInput
    answer: asyncio.Future[ModelAnswer]


class PendingRequests:
    """Tickets by id in order of arrival. The lock is held for dictionary steps only, never for computing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._tokens = 0

    def add(self, ticket: Ticket) -> None:
        with self._lock:
            self._tickets[ticket.work.id] = ticket
            self._tokens += ticket.work.tokens

    def take(self, ids: Iterable[int]) -> tuple[Ticket, ...]:
        """Removes and returns those of `ids` that still wait; the others were given up by their clients."""
        with self._lock:
            taken = tuple(ticket for id_ in ids if (ticket := self._tickets.pop(id_, None)) is not None)
            self._tokens -= sum(ticket.work.tokens for ticket in taken)
        return taken

    def all(self) -> tuple[Ticket, ...]:
        with self._lock:
            return tuple(self._tickets.values())

    def oldest_age(self, now: float) -> float:
        """Seconds that the oldest has waited; 0 where none waits."""
        with self._lock:
            for ticket in self._tickets.values():
                return max(0.0, now - ticket.work.arrived)
        return 0.0

    @property
    def depth(self) -> int:
        return len(self._tickets)

    @property
    def tokens(self) -> int:
        return self._tokens
