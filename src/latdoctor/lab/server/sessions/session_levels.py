"""The levels of session state: this process, then Redis, then the transcript, from which it is computed again.

A store only ever saves work: whatever it does not give, gives late or gives wrong is made from the transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, structs

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import SessionsConfig
from latdoctor.lab.server.sessions.conversation import (
    Conversation,
    Turn,
    recomputed,
    reconcile,
    text_digest,
    windowed,
)
from latdoctor.lab.server.sessions.in_process_store import InProcessStore
from latdoctor.lab.server.sessions.redis_store import (
    RedisStore,
    StoreError,
    StoreFailure,
    StoreFigures,
    StoreObserver,
    redis_store,
)
from latdoctor.lab.server.sessions.store_breaker import StoreBreaker

_MIB = 1 << 20
_APPENDS = 3  # attempts to append a turn whose client sends no transcript


class SessionLevel(StrEnum):
    """Where the history of a request came from."""

    PROCESS = "process"
    REDIS = "redis"
    RECOMPUTED = "recomputed"  # from the transcript
    NONE = "none"  # a new conversation, or one whose state is lost and whose client sent no transcript


class OpenSession(Struct, frozen=True, gc=False):
    """A session during one request. `stored`: what Redis is known to hold; `verified`: the client sent a transcript."""

    name: str
    level: SessionLevel
    conversation: Conversation | None = None
    stored: Conversation | None = None
    verified: bool = False
    behind: int = 0  # turns that the store did not have
    recomputed_tokens: int = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.conversation.tokens if self.conversation else ()


class SessionObserver(StoreObserver, Protocol):
    """Counts what the levels give."""

    def opened(self, session: OpenSession) -> None: ...
    def stale(self, level: SessionLevel) -> None:
        """A level held a state that is not the client's, or lacked turns."""

    def skipped(self) -> None:
        """The breaker kept a call from the store."""

    def superseded(self) -> None:
        """A write came after that of a later turn."""


class SessionLevels:
    """Sessions of one server. Safe from every thread; `lock` guards the process level, never a call to Redis."""

    def __init__(
        self,
        settings: SessionsConfig,
        max_tokens: int,
        observer: SessionObserver,
        lock: AbstractContextManager[None],
        clock: Callable[[], float],
    ) -> None:
        """Raises UsageError where Redis is configured and its client is not installed."""
        self.trimmed_turns = 0  # dropped by the window since the start
        self._settings = settings
        self._max_tokens = max_tokens
        self._observer = observer
        self._lock = lock
        self._clock = clock
        self._process = InProcessStore(settings)
        self._redis: RedisStore | None = None
        self._own_limit: int | None = None  # maxmemory before it was overridden, bytes
        self._breaker = StoreBreaker(settings.store_breaker_failures, settings.store_breaker_open_ms / 1000)
        self._connect(settings)

    def __len__(self) -> int:
        return len(self._process)

    @property
    def breaker_open(self) -> bool:
        return self._breaker.is_open

    def figures(self) -> StoreFigures | None:
        """The figures of Redis; None without it. Raises StoreError."""
        return self._redis.figures() if self._redis else None

    def configure(self, settings: SessionsConfig) -> None:
        """Raises UsageError where the store does not accept a setting: then nothing has changed."""
        before, replaced = self._settings, None
        if _connection(before) != _connection(settings):
            replaced = self._redis
            self._connect(settings)  # requests in progress end with the store they began with
            if _server(before) != _server(settings):
                self._own_limit = None
        elif self._redis is not None:
            self._limit(settings)
            self._redis.configure(settings)
            if settings.ttl_s < before.ttl_s:
                self._shorten(self._redis, settings.ttl_s)
        self._settings = settings
        self._breaker.configure(settings.store_breaker_failures, settings.store_breaker_open_ms / 1000)
        with self._lock:
            self._process.configure(settings)
        if replaced is not None:
            replaced.close()

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()

    def open_session(self, session: str, transcript: Sequence[str] | None) -> OpenSession:
        """The state of a session for one request; of several stores the first that has it."""
        found = self._checked(session, transcript) if transcript is not None else self._unchecked(session)
        self._observer.opened(found)
        return found

    def add_turn(self, opened: OpenSession, text: str, tokens: Sequence[int]) -> None:
        """Adds the turn of an answered request, and keeps the state for the next one."""
        before = opened.conversation.turns if opened.conversation else ()
        number = before[-1].number + 1 if before else 0
        new = Turn(number, text_digest(text), tuple(tokens))
        with self._lock:
            conversation = self._keep(opened, new)
        if conversation is not None:
            self._store(opened, conversation)

    def _keep(self, opened: OpenSession, new: Turn) -> Conversation | None:
        """Writes to the process level; the state for Redis, None where a later turn is there already."""
        now = self._clock()
        current = self._process.read(opened.name, now)
        turns = opened.conversation.turns if opened.conversation else ()
        if current is not None and opened.verified and _is_in(new, current):
            self._observer.superseded()
            return None
        if current is not None and not opened.verified and current.last.number >= new.number:
            turns, new = current.turns, Turn(current.last.number + 1, new.digest, new.tokens)
        conversation, trimmed = windowed((*turns, new), self._settings.window_turns, self._max_tokens)
        self.trimmed_turns += trimmed
        self._process.write(opened.name, conversation, now)
        return conversation

    def _checked(self, session: str, transcript: Sequence[str]) -> OpenSession:
        """The state that the transcript confirms."""
        with self._lock:
            kept = self._process.read(session, self._clock())
        found = self._confirmed(session, kept, transcript, SessionLevel.PROCESS, kept)
        if found is not None and not found.behind:
            return found
        if kept is not None and found is None:
            with self._lock:
                self._process.discard(session)  # it is of another conversation
        stored = self._read(session)
        shared = self._confirmed(session, stored, transcript, SessionLevel.REDIS, stored)
        better = min((one for one in (found, shared) if one is not None), key=lambda one: one.behind, default=None)
        if better is not None:
            return structs.replace(better, stored=stored)
        made = recomputed(transcript)
        if made is None:
            return OpenSession(session, SessionLevel.NONE, None, stored, verified=True)
        return OpenSession(
            session, SessionLevel.RECOMPUTED, made, stored, verified=True, recomputed_tokens=len(made.tokens)
        )

    def _confirmed(
        self,
        session: str,
        found: Conversation | None,
        transcript: Sequence[str],
        level: SessionLevel,
        stored: Conversation | None,
    ) -> OpenSession | None:
        if found is None:
            return None
        reconciled = reconcile(found, transcript)
        if reconciled is None or reconciled.behind:
            self._observer.stale(level)
        window = self._settings.window_turns
        if reconciled is None or 0 < window <= reconciled.behind:
            return None  # nothing of it is in the window any more
        conversation = reconciled.conversation
        missing = conversation.turns[len(found.turns) :]
        if missing:
            conversation, _ = windowed(conversation.turns, window, self._max_tokens)
        again = conversation.turns[-len(missing) :] if missing else ()  # the window may have dropped some of them
        return OpenSession(
            session,
            level,
            conversation,
            stored,
            verified=True,
            behind=reconciled.behind,
            recomputed_tokens=sum(len(turn.tokens) for turn in again),
        )

    def _unchecked(self, session: str) -> OpenSession:
        """Without a transcript the later state is the better one: another replica may have answered since."""
        stored = self._read(session)
        with self._lock:
            kept = self._process.read(session, self._clock())
        if stored is not None and (kept is None or kept.last.number <= stored.last.number):
            return OpenSession(session, SessionLevel.REDIS, stored, stored)
        if stored is not None and kept is not None:
            self._observer.stale(SessionLevel.REDIS)
            return OpenSession(session, SessionLevel.PROCESS, kept, stored)
        return OpenSession(session, SessionLevel.PROCESS, kept) if kept else OpenSession(session, SessionLevel.NONE)

    def _read(self, session: str) -> Conversation | None:
        store = self._redis
        if store is None or not self._allowed():
            return None
        try:
            found = store.read(session)
        except StoreError as error:
            self._failed(error)
            return None
        self._breaker.succeeded()
        return found

    def _store(self, opened: OpenSession, conversation: Conversation) -> None:
        """Writes to Redis what it does not have. Where another writer came first, the later turn stays."""
        store = self._redis
        if store is None or not self._allowed():
            return
        try:
            self._written(store, opened, conversation)
        except StoreError as error:
            self._failed(error)
        else:
            self._breaker.succeeded()

    def _written(self, store: RedisStore, opened: OpenSession, conversation: Conversation) -> None:
        conflict = store.write(opened.name, opened.stored, conversation)
        for _ in range(_APPENDS):
            if conflict is None:
                return
            if opened.verified and conflict.number >= conversation.last.number:
                current = store.read(opened.name)
                if current is not None and _is_in(conversation.last, current):
                    self._observer.superseded()
                    return
            if not opened.verified and conflict.number >= 0:
                current = store.read(opened.name)
                before, last = current.turns if current else (), conversation.last
                number = before[-1].number + 1 if before else last.number
                turns = (*before, Turn(number, last.digest, last.tokens))
                conversation, _ = windowed(turns, self._settings.window_turns, self._max_tokens)
                conflict = store.write(opened.name, current, conversation)
            else:
                conflict = store.replace(opened.name, conflict, conversation)

    def _allowed(self) -> bool:
        if self._breaker.allows(self._clock()):
            return True
        self._observer.skipped()
        return False

    def _failed(self, error: StoreError) -> None:
        """A store that is full or read-only still answers: its reads are worth their time."""
        if error.reason not in (StoreFailure.FULL, StoreFailure.CORRUPT, StoreFailure.READ_ONLY):
            self._breaker.failed(self._clock())

    def _connect(self, settings: SessionsConfig) -> None:
        self._redis = redis_store(settings, self._observer)

    def _shorten(self, store: RedisStore, ttl_s: float) -> None:
        """Where it fails, the shorter time to live holds for what is written from now on."""
        try:
            store.shorten(ttl_s)
        except StoreError as error:
            self._failed(error)

    def _limit(self, settings: SessionsConfig) -> None:
        """Overrides maxmemory, or restores it. Raises UsageError."""
        if self._redis is None or settings.store_limit_mib == self._settings.store_limit_mib:
            return
        try:
            figures = self._redis.figures()
        except StoreError as error:
            raise UsageError(f"maxmemory cannot be changed: {error.what}") from error
        if self._own_limit is None:
            self._own_limit = figures.limit_bytes
        self._redis.set_limit(int(settings.store_limit_mib * _MIB) or self._own_limit)


def _is_in(turn: Turn, current: Conversation) -> bool:
    """Whether a later request of the session was answered first: it had this turn in its transcript."""
    return current.last.number >= turn.number and any(one.digest == turn.digest for one in current.turns)


def _connection(settings: SessionsConfig) -> tuple[object, ...]:
    """What a connection depends on; the rest of the settings is read at each call."""
    return settings.store, *_server(settings), settings.store_timeout_ms


def _server(settings: SessionsConfig) -> tuple[str, str]:
    return settings.redis_address, settings.sentinel_primary
