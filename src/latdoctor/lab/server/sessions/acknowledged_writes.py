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
            new = tuple(turn.tag for turn in written.turns)
            before = (tag for tag in self._tags.get(session, ()) if tag not in new)
            self._tags[session] = (*before, *new)[-_TURNS:]
            self._tags.move_to_end(session)
            if len(self._tags) > self._most:
                self._tags.popitem(last=False)

    def known(self, session: str) -> tuple[bytes, ...]:
        """Tags of the confirmed turns, oldest first: as they were before a read, which may miss later ones."""
        with self._lock:
            return self._tags.get(session, ())

    def has_lost(self, session: str, known: tuple[bytes, ...], found: Conversation) -> bool:
        """Whether the store, which returned `found`, has fallen back to a state before the one `known` before the read.

        True once for each loss. A state that the store lost whole is not distinguished from one that expired.
        """
        if found.last.tag not in known[:-1]:
            return False
        with self._lock:
            return self._tags.pop(session, None) is not None
