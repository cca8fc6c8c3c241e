"""Conversation history by session, limited in age, turns and tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from latdoctor.lab.server.config import SessionsConfig


class SessionStore(Protocol):
    """Where turns are kept. Times are seconds of the server's monotonic clock; callers hold the shared lock."""

    def history(self, session: str, now: float) -> tuple[int, ...] | None:
        """The tokens of the turns before, oldest first; None where the session is unknown or has expired."""

    def append(self, session: str, tokens: Sequence[int], now: float) -> None: ...

    def configure(self, settings: SessionsConfig) -> None: ...

    def expire(self, now: float) -> None:
        """Forgets what is past its time to live."""

    def __len__(self) -> int: ...


@dataclass(slots=True)
class _Conversation:
    touched: float
    turns: list[tuple[int, ...]] = field(default_factory=list)


class InProcessSessions:
    """SessionsConfig in this process, the least recently used forgotten first.

    `max_tokens` bounds a conversation whatever the window is: more could never be given to the model.
    """

    def __init__(self, settings: SessionsConfig, max_tokens: int) -> None:
        self._settings = settings
        self._max_tokens = max_tokens
        self._known: OrderedDict[str, _Conversation] = OrderedDict()

    def configure(self, settings: SessionsConfig) -> None:
        self._settings = settings
        self._shrink()

    def history(self, session: str, now: float) -> tuple[int, ...] | None:
        self.expire(now)
        found = self._known.get(session)
        if found is None:
            return None
        found.touched = now
        self._known.move_to_end(session)
        return tuple(token for turn in found.turns for token in turn)

    def append(self, session: str, tokens: Sequence[int], now: float) -> None:
        found = self._known.setdefault(session, _Conversation(now))
        found.touched = now
        self._known.move_to_end(session)
        found.turns.append(tuple(tokens))
        window = self._settings.window_turns
        if window:
            del found.turns[:-window]
        while len(found.turns) > 1 and sum(map(len, found.turns)) > self._max_tokens:
            del found.turns[0]
        self._shrink()

    def expire(self, now: float) -> None:
        """The order of the mapping is the order of use, so the expired ones are all at its front."""
        while self._known:
            name, oldest = next(iter(self._known.items()))
            if now - oldest.touched < self._settings.ttl_s:
                return
            del self._known[name]

    def _shrink(self) -> None:
        while len(self._known) > self._settings.max_sessions:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        return len(self._known)
