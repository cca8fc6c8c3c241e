"""One run on one target: a lock that the kernel frees when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.journal.state_dir import ensure_private
from latdoctor.sanitize import clean

_IDENTIFY = 0.2  # seconds in which a new holder writes its identity
_POLL = 0.01  # seconds between two reads of it
_MOST = 4096  # bytes read of a holder's identity


class LockHeldError(OperationError):
    """Another process holds the lock. `pid` is 0 and `run` empty where it has not identified itself."""

    def __init__(self, what: str, *, where: str, next_step: str, pid: int, run: str) -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.pid = pid
        self.run = run


class _Holder(Struct, frozen=True):
    pid: int = 0
    run: str = ""


@contextmanager
def lock(folder: Path, key: str, run: str = "") -> Iterator[int]:
    """Hold the lock of `key` in `folder` for `run`, without waiting. Forked children hold it too.

    Yields the descriptor of the file: a process that inherits it holds the lock too, and says so by `take_over`. The
    file is never unlinked: otherwise two processes could hold locks on two files of one name. Raises LockHeldError,
    UsageError for the folder, and OperationError where locking fails.
    """
    ensure_private(folder)
    path = _path(folder, key)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise _failed(path, error) from error
    try:
        _acquire(descriptor, path, key, run)
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(folder: Path, key: str) -> bool:
    """Whether a process holds the lock of `key`; also true where it cannot be read."""
    try:
        descriptor = os.open(_path(folder, key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _path(folder: Path, key: str) -> Path:
    return folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.lock"


def _acquire(descriptor: int, path: Path, key: str, run: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _busy(descriptor, path, key) from error
    except OSError as error:
        raise _failed(path, error) from error
    try:
        take_over(descriptor, run)
    except OSError as error:
        raise _failed(path, error) from error


def take_over(descriptor: int, run: str) -> None:
    """Name this process as the holder of a lock whose file it has open. Raises OSError."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(_Holder(os.getpid(), clean(run, 200))), 0)


def _busy(descriptor: int, path: Path, key: str) -> LockHeldError:
    until = time.monotonic() + _IDENTIFY
    while not (holder := _holder(descriptor)).pid and time.monotonic() < until:
        time.sleep(_POLL)  # it has just got it
    target = clean(key, 200)
    if not holder.pid:
        return LockHeldError(
            f"another process has locked {target} and has not identified itself yet",
            where=str(path),
            next_step=f"try again; `fuser {path}` shows its process id",
            pid=0,
            run="",
        )
    of_run = f", run {clean(holder.run, 200)}" if holder.run else ""
    return LockHeldError(
        f"process {holder.pid}{of_run} has locked {target}",
        where=str(path),
        next_step=f"wait for it to end; Ctrl-C in its terminal, or kill {holder.pid}, makes it roll back its changes",
        pid=holder.pid,
        run=clean(holder.run, 200),
    )


def _holder(descriptor: int) -> _Holder:
    """Identity of a live holder. An ended one leaves its identity until the next one has written its own."""
    try:
        holder = msgspec.json.decode(os.pread(descriptor, _MOST, 0), type=_Holder)
    except (OSError, ValueError):
        return _Holder()
    return holder if _lives(holder.pid) else _Holder()


def _lives(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)  # sends no signal, only checks
    except PermissionError:
        return True  # of another user
    except (OSError, OverflowError):
        return False
    return True


def _failed(path: Path, error: OSError) -> OperationError:
    return OperationError(
        f"the lock cannot be taken: {error.strerror}",
        where=str(path),
        next_step="check that this folder is writable, on a local disk and has free space",
    )
