"""Conversations in Redis, shared by all replicas. Every call is bounded in time and raises StoreError.

A conversation is a list of encoded turns. It is changed by one script only, which compares the last turn's tag with
the one that the writer read: two replicas can never interleave their turns, and only new turns are sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.config import SessionsConfig
from latdoctor.lab.server.sessions.acknowledged_writes import AcknowledgedWrites
from latdoctor.lab.server.sessions.conversation import (
    TAG_BYTES,
    Conversation,
    Turn,
    decode_turn,
    difference,
    encode_turn,
)
from latdoctor.lab.server.sessions.redis_connection import FailoverCount, connected

if TYPE_CHECKING:
    import redis

PASSWORD_VARIABLE = "LATDOCTOR_REDIS_PASSWORD"  # noqa: S105 - the name of the variable
KEY_PREFIX = "latdoctor:session:"
_CONNECTIONS = 16
_MOST_TURNS = 1000  # read of a conversation
_ADMIN_SECONDS = 1.0  # of a reply about the store itself, which no request waits for

# KEYS[1] the conversation; ARGV: tag of the last turn that the writer knows (empty: none), milliseconds to live, turns
# to drop at the front (-1: all), then the new turns. The reply is empty where it was written, else the tag found.
# It appends first: Redis lets a script that has written before exceed maxmemory.
_WRITE = f"""
local last = redis.call('LINDEX', KEYS[1], -1)
local tag = last and string.sub(last, 1, {TAG_BYTES}) or ''
if tag ~= ARGV[1] then return {{tag}} end
for i = 4, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
if ARGV[3] == '-1' then redis.call('LTRIM', KEYS[1], 3 - #ARGV, -1)
elseif ARGV[3] ~= '0' then redis.call('LTRIM', KEYS[1], ARGV[3], -1) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {{}}
"""

# KEYS conversations; ARGV: milliseconds to live since each was used. The time since then is whole seconds; where the
# store counts uses instead (a policy by frequency), what is left to live is cut to that at most.
_SHORTEN = """
for _, key in ipairs(KEYS) do
  local idle = redis.pcall('OBJECT', 'IDLETIME', key)
  local left = tonumber(ARGV[1]) - (type(idle) == 'number' and idle * 1000 or 0)
  if left <= 0 then redis.call('UNLINK', key)
  else
    local now = redis.call('PTTL', key)
    if now == -1 or now > left then redis.call('PEXPIRE', key, left) end
  end
end
"""
_AT_ONCE = 500  # conversations in one call
_SHORTEN_SECONDS = 5.0  # what is not reached by then expires by its earlier time to live


class StoreFailure(StrEnum):
    """Why a call failed."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    FULL = "full"  # over maxmemory, and the policy evicts nothing
    READ_ONLY = "read-only"  # a replica that was not promoted
    LOADING = "loading"  # it reads its file after a start
    CORRUPT = "corrupt"  # what is stored is no conversation
    OTHER = "other"


class StoreError(OperationError):
    """A call to the store failed; `reason` says how."""

    def __init__(self, reason: StoreFailure, detail: str) -> None:
        super().__init__(f"the session store failed ({reason}): {detail}")
        self.reason = reason


class Conflict(Struct, frozen=True):
    """The store holds another state than the writer knew; `tag` is that of its last turn, empty for none."""

    tag: bytes

    @property
    def number(self) -> int:
        """Of the last turn that is stored; -1 where none is."""
        return int.from_bytes(self.tag[:8]) if self.tag else -1


class StoreFigures(Struct, frozen=True):
    """The store's own figures (INFO). `limit_bytes` 0: no limit. `failovers`: seen by this server."""

    used_bytes: int
    limit_bytes: int
    keys: int
    evicted: int
    expired: int
    uptime_seconds: int
    is_replica: bool
    failovers: int


class StoreObserver(Protocol):
    """Counts calls."""

    def called(self, seconds: float, failure: StoreFailure | None) -> None: ...
    def lost_write(self) -> None:
        """The store had an older state than it had confirmed."""

    def moved(self, *, read: int = 0, written: int = 0, whole: int = 0) -> None:
        """Bytes of state that were read or written; `whole`: what a write of the whole state would have sent."""


class RedisStore:
    """One Redis server. Safe from every thread."""

    def __init__(self, settings: SessionsConfig, observer: StoreObserver, environment: Mapping[str, str]) -> None:
        seconds = max(0.001, settings.store_timeout_ms / 1000)
        password = environment.get(PASSWORD_VARIABLE) or None
        self._settings = settings
        self._observer = observer
        self._acknowledged = AcknowledgedWrites()
        self._failovers = FailoverCount()
        self._client = connected(settings, password, seconds, max_connections=_CONNECTIONS)
        self._admin = connected(settings, password, _ADMIN_SECONDS)
        self._script = self._client.register_script(_WRITE)
        self._shorten = self._admin.register_script(_SHORTEN)

    def configure(self, settings: SessionsConfig) -> None:
        """Another time to live or compression, from the next write on."""
        self._settings = settings

    def read(self, session: str) -> Conversation | None:
        """None where there is none. Raises StoreError; what is no conversation is deleted."""
        confirmed = self._acknowledged.known(session)
        with self._call():
            reply = self._client.lrange(KEY_PREFIX + session, -_MOST_TURNS, -1)
        stored = [one for one in reply if isinstance(one, bytes)]
        self._observer.moved(read=sum(map(len, stored)))
        if not stored:
            return None
        try:
            found = Conversation(tuple(decode_turn(one) for one in stored))
        except ValueError as error:
            self._observer.called(0.0, StoreFailure.CORRUPT)
            with self._call():
                self._client.delete(KEY_PREFIX + session)
            raise StoreError(StoreFailure.CORRUPT, str(error)) from error
        if self._acknowledged.has_lost(session, confirmed, found):
            self._observer.lost_write()
        return found

    def write(self, session: str, known: Conversation | None, desired: Conversation) -> Conflict | None:
        """Changes `known`, the state that was read, into `desired`; Conflict where another writer came before.

        Raises StoreError.
        """
        return self._write(session, known.last.tag if known else b"", known, desired)

    def replace(self, session: str, found: Conflict, desired: Conversation) -> Conflict | None:
        """Stores `desired` whole in place of the state whose tag was found. Raises StoreError."""
        return self._write(session, found.tag, None, desired)

    def _write(self, session: str, tag: bytes, known: Conversation | None, desired: Conversation) -> Conflict | None:
        change = difference(known, desired)
        new = [self._encoded(turn) for turn in change.append]
        lifetime = int(self._settings.ttl_s * 1000)
        drop = -1 if change.drop is None else change.drop
        with self._call():
            reply = self._script(keys=[KEY_PREFIX + session], args=[tag, lifetime, drop, *new])
        kept = desired.turns[: len(desired.turns) - len(new)]
        written = sum(map(len, new))
        self._observer.moved(written=written, whole=written + sum(len(self._encoded(turn)) for turn in kept))
        if reply:
            return Conflict(bytes(reply[0]))
        self._acknowledged.confirmed(session, desired)
        return None

    def _encoded(self, turn: Turn) -> bytes:
        return encode_turn(turn, self._settings.compress_bytes)

    def figures(self) -> StoreFigures:
        """Raises StoreError."""
        import redis

        try:
            info: dict[str, Any] = self._admin.info()
        except redis.RedisError as error:
            raise StoreError(_failure(error), str(error)) from error
        return StoreFigures(
            used_bytes=int(info.get("used_memory", 0)),
            limit_bytes=int(info.get("maxmemory", 0)),
            keys=int((info.get("db0") or {}).get("keys", 0)),
            evicted=int(info.get("evicted_keys", 0)),
            expired=int(info.get("expired_keys", 0)),
            uptime_seconds=int(info.get("uptime_in_seconds", 0)),
            is_replica=info.get("role") == "slave",
            failovers=self._failovers.after(info),
        )

    def shorten(self, ttl_s: float) -> None:
        """Gives what is stored already a shorter time to live, counted from its last use. Raises StoreError."""
        import redis

        deadline, cursor = monotonic() + _SHORTEN_SECONDS, 0
        try:
            while monotonic() < deadline:
                cursor, found = self._admin.scan(cursor, match=f"{KEY_PREFIX}*", count=_AT_ONCE)
                if found:
                    self._shorten(keys=found, args=[int(ttl_s * 1000)])
                if not cursor:
                    return
        except redis.RedisError as error:
            raise StoreError(_failure(error), str(error)) from error

    def set_limit(self, limit_bytes: int) -> None:
        """Sets maxmemory. Raises UsageError where the store does not permit it."""
        import redis

        try:
            self._admin.config_set("maxmemory", limit_bytes)
        except redis.RedisError as error:
            raise UsageError(f"the session store did not accept maxmemory {limit_bytes}: {error}") from error

    def close(self) -> None:
        self._client.close()
        self._admin.close()

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Times one call, and turns its failure into StoreError."""
        import redis

        started = perf_counter()
        try:
            yield
        except redis.RedisError as error:
            failure = _failure(error)
            self._observer.called(perf_counter() - started, failure)
            raise StoreError(failure, str(error)) from error
        self._observer.called(perf_counter() - started, None)


def _failure(error: redis.RedisError) -> StoreFailure:
    from redis import exceptions

    kinds: tuple[tuple[type[Exception], StoreFailure], ...] = (
        (exceptions.TimeoutError, StoreFailure.TIMEOUT),
        (exceptions.BusyLoadingError, StoreFailure.LOADING),
        (exceptions.ConnectionError, StoreFailure.CONNECTION),
        (exceptions.OutOfMemoryError, StoreFailure.FULL),
        (exceptions.ReadOnlyError, StoreFailure.READ_ONLY),
    )
    return next((failure for kind, failure in kinds if isinstance(error, kind)), StoreFailure.OTHER)


def redis_store(
    settings: SessionsConfig, observer: StoreObserver, environment: Mapping[str, str] = os.environ
) -> RedisStore | None:
    """The store of `settings`; None where sessions stay in the process. Raises UsageError without the client."""
    if settings.store != "redis" or not settings.redis_address:
        return None
    try:
        return RedisStore(settings, observer, environment)
    except ImportError as error:
        raise UsageError(
            "sessions in Redis need its client", next_step="pip install 'latdoctor[lab]', or sessions.store=process"
        ) from error
