"""Faults of a real Redis that keeps the sessions: killed, full, evicting, emptied, failed over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.redis_failover import ReplicatedRedis
from latdoctor.lab.redis_server import RedisControl, RedisServer

_FULL = 0.98  # of the memory in use: below the next write
_ROOM = 1 << 20  # bytes above the memory in use, which another application fills again and again
_VALUE, _VALUES, _AT_ONCE, _EVERY = 16 << 10, 1024, 16, 0.06  # bytes of one, how many, written together, seconds
_FOREIGN = "latdoctor:neighbour:"
_EMPTIED_EVERY = 0.25  # seconds


class StoreFaultKind(StrEnum):
    """What goes wrong."""

    KILL = "kill"  # SIGKILL; started again, empty, at the end
    FULL = "full"  # over maxmemory, and nothing is evicted
    EVICT = "evict"  # another application fills it, and the least recently used is evicted
    EMPTY = "empty"  # emptied again and again, as by a restart loop without persistence
    DEMOTE = "demote"  # failed over to a replica that was not promoted: old states, no writes
    FAIL_OVER = "fail-over"  # the primary is killed, and Sentinel promotes a replica that lacks its last writes


SessionStore = RedisControl | ReplicatedRedis


@contextmanager
def store_fault(kind: StoreFaultKind, store: SessionStore, lifetime: float) -> Iterator[None]:
    """The fault is active inside the context, for `lifetime` seconds at most. Raises OperationError, UsageError."""
    with _until(_begun(kind, store), lifetime):
        yield


@contextmanager
def _until(end: Callable[[], None], lifetime: float) -> Iterator[None]:
    """Calls `end` once, at the end of the context or after `lifetime` seconds."""
    lock, ended = threading.Lock(), False

    def end_once() -> None:
        nonlocal ended
        with lock:
            if not ended:
                end()
                ended = True

    timer = threading.Timer(lifetime, end_once)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        end_once()


def _begun(kind: StoreFaultKind, session_store: SessionStore) -> Callable[[], None]:
    """Begins the fault; what ends it."""
    if kind is StoreFaultKind.FAIL_OVER:
        if not isinstance(session_store, ReplicatedRedis):
            raise UsageError("only a Redis with a replica that the laboratory started itself can be failed over")
        session_store.lose_primary()
        return session_store.restart_old_primary
    store = session_store.primary if isinstance(session_store, ReplicatedRedis) else session_store
    match kind:
        case StoreFaultKind.KILL:
            if not isinstance(store, RedisServer):
                raise UsageError("only a Redis that the laboratory started itself can be killed")
            store.kill()
            return store.start
        case StoreFaultKind.DEMOTE:
            store.demote()
            return store.promote
        case StoreFaultKind.EMPTY:
            return _repeated(store.flush, _EMPTIED_EVERY)
        case StoreFaultKind.FULL:
            return _limited(store, int(store.used_bytes() * _FULL), "noeviction")
        case StoreFaultKind.EVICT:
            restore = _limited(store, store.used_bytes() + _ROOM, "allkeys-lru")
            end_writes = _repeated(partial(store.write_values, _FOREIGN, _VALUE, _AT_ONCE, _VALUES), _EVERY)
            return partial(_ended, end_writes, partial(store.delete_values, _FOREIGN, _VALUES), restore)


def _ended(*ends: Callable[[], None]) -> None:
    for end in ends:
        end()


def _limited(store: RedisControl, during: int, evicts: str) -> Callable[[], None]:
    """Sets maxmemory; at the end another limit, set meanwhile by an operator, is kept."""
    before, policy = store.limit()
    store.set_limit(during, evicts)

    def restore() -> None:
        now, _ = store.limit()
        store.set_limit(before if now == during else now, policy)

    return restore


def _repeated(act: Callable[[], None], every: float) -> Callable[[], None]:
    """Calls `act` now and every so many seconds on a thread of its own; what ends that."""
    act()
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(every):
            with suppress(OperationError):  # it may be restarted meanwhile
                act()

    thread = threading.Thread(target=repeat, name="latdoctor-store-fault", daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join()

    return end
