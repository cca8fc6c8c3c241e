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

_SAYING = 0.2  # seconds in which a holder says who it is
_LOOK = 0.01  # seconds between two looks at that
_MOST = 4096  # bytes read of what a holder says of itself


class LockHeldError(OperationError):
    """Somebody else holds the lock. `pid` is 0 and `run` empty where the holder has not said who it is."""

    def __init__(self, what: str, *, where: str, next_step: str, pid: int, run: str) -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.pid = pid
        self.run = run


class _Holder(Struct, frozen=True):
    pid: int = 0
    run: str = ""


@contextmanager
def lock(folder: Path, key: str, run: str = "") -> Iterator[None]:
    """Holds the lock of `key` in `folder` for `run`; never waits for it. Children of a fork meanwhile hold it too.

    The file is never unlinked: else two could hold locks on two files of one name. Raises Busy, UsageError for the
    folder, and OperationError where the lock cannot be taken.
    """
    ensure_private(folder)
    path = folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise _failed(path, error) from error
    try:
        _take(descriptor, path, key, run)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, key: str, run: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _busy(descriptor, path, key) from error
    except OSError as error:
        raise _failed(path, error) from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(_Holder(os.getpid(), clean(run, 200))), 0)
    except OSError as error:
        raise _failed(path, error) from error


def _busy(descriptor: int, path: Path, key: str) -> LockHeldError:
    until = time.monotonic() + _SAYING
    while not (holder := _holder(descriptor)).pid and time.monotonic() < until:
        time.sleep(_LOOK)  # it has just got it
    target = clean(key, 200)
    if not holder.pid:
        return LockHeldError(
            f"another process holds {target} and has not said yet who it is",
            where=str(path),
            next_step=f"try again; `fuser {path}` tells its number",
            pid=0,
            run="",
        )
    of_run = f", run {clean(holder.run, 200)}" if holder.run else ""
    return LockHeldError(
        f"process {holder.pid}{of_run} holds {target}",
        where=str(path),
        next_step="wait for it to end; stopped by Ctrl-C it takes back what it did",
        pid=holder.pid,
        run=clean(holder.run, 200),
    )


def _holder(descriptor: int) -> _Holder:
    """Who says to hold it. One that has ended leaves its words, and the next may not have said its own yet."""
    try:
        said = msgspec.json.decode(os.pread(descriptor, _MOST, 0), type=_Holder)
    except (OSError, ValueError):
        return _Holder()
    return said if _lives(said.pid) else _Holder()


def _lives(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)  # sends nothing, and says whether it could
    except PermissionError:
        return True  # of another user
    except (OSError, OverflowError):
        return False
    return True


def _failed(path: Path, error: OSError) -> OperationError:
    return OperationError(
        f"the lock cannot be taken: {error.strerror}",
        where=str(path),
        next_step="see that this folder can be written and lies on a disk of this machine with space left",
    )
