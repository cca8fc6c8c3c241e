"""Conversation history by session, limited in age, turns and tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from latdoctor.lab.server.config import SessionsConfig


@dataclass(slots=True)
class _Conversation:
    touched: float
    turns: list[tuple[int, ...]] = field(default_factory=list)


class InProcessSessions:
    """Sessions in this process, the least recently used dropped first. Callers hold the shared lock.

    Times are seconds of the server's monotonic clock. `max_tokens` bounds a conversation whatever the window is: the
    model could never use more.
    """

    def __init__(self, settings: SessionsConfig, max_tokens: int) -> None:
        self._settings = settings
        self._max_tokens = max_tokens
        self.trimmed_turns = 0  # dropped by the window since the start
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()

    def configure(self, settings: SessionsConfig) -> None:
        self._settings = settings
        self._shrink()

    def history(self, session: str, now: float) -> tuple[int, ...] | None:
        """The tokens of the earlier turns, oldest first; None where the session is unknown or has expired."""
        self.expire(now)
        found = self._conversations.get(session)
        if found is None:
            return None
        found.touched = now
        self._conversations.move_to_end(session)
        return tuple(token for turn in found.turns for token in turn)

    def append(self, session: str, tokens: Sequence[int], now: float) -> None:
        found = self._conversations.setdefault(session, _Conversation(now))
        found.touched = now
        self._conversations.move_to_end(session)
        found.turns.append(tuple(tokens))
        window = self._settings.window_turns
        if window:
            self.trimmed_turns += max(0, len(found.turns) - window)
            del found.turns[:-window]
        while len(found.turns) > 1 and sum(map(len, found.turns)) > self._max_tokens:
            del found.turns[0]
        self._shrink()

    def expire(self, now: float) -> None:
        """Drops sessions past their time to live; the mapping is in order of use, so they are all at its front."""
        while self._conversations:
            name, oldest = next(iter(self._conversations.items()))
            if now - oldest.touched < self._settings.ttl_s:
                return
            del self._conversations[name]

    def _shrink(self) -> None:
        while len(self._conversations) > self._settings.max_sessions:
            self._conversations.popitem(last=False)

    def __len__(self) -> int:
        return len(self._conversations)
