"""Conversations in this process, limited in age and number."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from latdoctor.lab.server.config import SessionsConfig
from latdoctor.lab.server.sessions.conversation import Conversation


@dataclass(slots=True)
class _Kept:
    touched: float
    conversation: Conversation


class InProcessStore:
    """Sessions in this process, the least recently used dropped first. Callers hold the shared lock.

    Times are seconds of the server's monotonic clock.
    """

    def __init__(self, settings: SessionsConfig) -> None:
        self._settings = settings
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def configure(self, settings: SessionsConfig) -> None:
        self._settings = settings
        self._shrink()

    def read(self, session: str, now: float) -> Conversation | None:
        """None where the session is unknown or has expired."""
        self.expire(now)
        found = self._kept.get(session)
        if found is None:
            return None
        found.touched = now
        self._kept.move_to_end(session)
        return found.conversation

    def write(self, session: str, conversation: Conversation, now: float) -> None:
        self._kept[session] = _Kept(now, conversation)
        self._kept.move_to_end(session)
        self._shrink()

    def discard(self, session: str) -> None:
        self._kept.pop(session, None)

    def expire(self, now: float) -> None:
        """Drops sessions past their time to live; the mapping is in order of use, so they are all at its front."""
        while self._kept:
            name, oldest = next(iter(self._kept.items()))
            if now - oldest.touched < self._settings.ttl_s:
                return
            del self._kept[name]

    def _shrink(self) -> None:
        while len(self._kept) > self._settings.max_sessions:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
