"""What this server has written to the store and the store has confirmed: a store that failed over may not have it."""

from __future__ import annotations

import threading
from collections import OrderedDict

from latdoctor.lab.server.sessions.conversation import Conversation

_SESSIONS = 10_000  # the least recently written are forgotten first
_TURNS = 32  # of each, by their tags


class AcknowledgedWrites:
    """The newest confirmed turns of each session. Safe from every thread."""

    def __init__(self, sessions: int = _SESSIONS) -> None:
        self._most = sessions
        self._tags: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def confirmed(self, session: str, written: Conversation) -> None:
        """The store has confirmed this state."""
        with self._lock:
            known = self._tags.get(session, ())
            new = tuple(turn.tag for turn in written.turns if turn.tag not in known)
            self._tags[session] = (*known, *new)[-_TURNS:]
            self._tags.move_to_end(session)
            if len(self._tags) > self._most:
                self._tags.popitem(last=False)

    def has_lost(self, session: str, found: Conversation) -> bool:
        """Whether the store, which returned `found`, has fallen back to a state before the confirmed one.

        True once for each loss. A state that the store lost whole is not distinguished from one that expired.
        """
        with self._lock:
            lost = found.last.tag in self._tags.get(session, ())[:-1]
            if lost:
                del self._tags[session]
            return lost
