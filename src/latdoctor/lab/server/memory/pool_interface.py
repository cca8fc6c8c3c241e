"""Memory pool interface: leases of buffers, and statistics.

Only the buffers that the server passes in (token ids, padded batches, lasting state) come from a pool. torch's own
operators allocate from the process allocator (glibc) or from CUDA's, whatever the pool is.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, RLock
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.lab.server.config import MemoryConfig

if TYPE_CHECKING:
    import torch

MIB = 1 << 20
Shape = tuple[int, ...]
Clock = Callable[[], float]


class OutOfMemory(OperationError):  # noqa: N818 - the name every allocator gives it
    """The pool is at its limit, and giving back what was free did not make room."""


class MemoryStats(Struct, frozen=True):
    """A backend's figures. Bytes, seconds and counts since the start; None is what this backend cannot count.

    `fragmentation_ratio` is 1 - largest hole / free bytes, `inactive_ratio` is free bytes in segments that are also in
    use / reserved bytes. Neither alone is "fragmentation": many small empty segments raise only the first.
    """

    backend: str
    limit_bytes: int | None = None
    reserved_bytes: int | None = None
    allocated_bytes: int | None = None
    inactive_split_bytes: int | None = None
    largest_free_bytes: int | None = None
    fragmentation_ratio: float | None = None
    inactive_ratio: float | None = None
    segments: int | None = None
    device_alloc_total: int | None = None
    device_free_total: int | None = None
    alloc_total: int | None = None
    alloc_retries_total: int | None = None
    alloc_oom_total: int | None = None
    alloc_seconds_total: float | None = None
    page_faults_total: int | None = None
    compactions_total: int = 0
    compaction_seconds_total: float = 0.0


class BufferLease(Protocol):
    """A buffer that is held until it is released.

    Between uses a compaction may move it, so `tensor` is read anew each time; inside `with lease as tensor:` it stays.
    """

    @property
    def tensor(self) -> torch.Tensor: ...

    def release(self) -> None:
        """Gives the buffer back. Raises ValueError if that was done before, or while it is in use."""

    def __enter__(self) -> torch.Tensor: ...

    def __exit__(self, *raised: object) -> None: ...


def minor_faults() -> int | None:
    """Minor page faults of the calling thread so far; None where the system does not count them per thread."""
    if sys.platform != "linux":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


class MemoryPool(ABC):
    """A source of buffers. Every method may be called from any thread; the worker's are `tensor` and `watch`."""

    backend: str

    def __init__(self, config: MemoryConfig, clock: Clock = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._lock = RLock()
        self._freed = Condition(self._lock)  # notified whenever there may be more room
        self._last_compaction = clock()
        self._allocs = 0
        self._ooms = 0
        self._alloc_seconds = 0.0
        self._faults: int | None = None if minor_faults() is None else 0
        self._compactions = 0
        self._compaction_seconds = 0.0

    @property
    def config(self) -> MemoryConfig:
        return self._config

    @abstractmethod
    def _take(self, shape: Shape, dtype: torch.dtype, *, long: bool) -> BufferLease:
        """A buffer. Raises OutOfMemory."""

    @abstractmethod
    def _compact(self) -> None:
        """Moves the buffers in use together and releases the rest."""

    @abstractmethod
    def stats(self) -> MemoryStats: ...

    def _stats(self, **figures: Any) -> MemoryStats:
        """The statistics that every backend has, and `figures` of one backend, which may replace them."""
        common = {
            "alloc_total": self._allocs,
            "alloc_oom_total": self._ooms,
            "alloc_seconds_total": self._alloc_seconds,
            "page_faults_total": self._faults,
            "compactions_total": self._compactions,
            "compaction_seconds_total": self._compaction_seconds,
        }
        return MemoryStats(self.backend, **{**common, **figures})

    @abstractmethod
    def close(self) -> None:
        """Releases everything. Buffers still in use stay readable until they are dropped."""

    def set_live(self, config: MemoryConfig) -> None:
        """Applies the live knobs. Raises UsageError for one that this machine does not support."""
        with self._lock:
            self._config = config

    def lease(self, shape: Shape, dtype: torch.dtype, *, long: bool = False) -> BufferLease:
        """A buffer of unknown content to hold; `long` inputs may use the share kept for them. Raises OutOfMemory."""
        with self._lock:
            started = time.perf_counter()
            self._allocs += 1
            try:
                return self._take(shape, dtype, long=long)
            except OutOfMemory:
                self._ooms += 1
                raise
            finally:
                self._alloc_seconds += time.perf_counter() - started

    @contextmanager
    def tensor(self, shape: Shape, dtype: torch.dtype, *, long: bool = False) -> Iterator[torch.Tensor]:
        """A buffer of unknown content for the time of a `with`; where there is no room it waits up to `wait_ms`
        for it. Raises OutOfMemory."""
        lease = self._patient_lease(shape, dtype, long=long)
        try:
            with lease as tensor:
                yield tensor
        finally:
            lease.release()

    def _patient_lease(self, shape: Shape, dtype: torch.dtype, *, long: bool) -> BufferLease:
        """Tries again whenever a buffer was released, until the time is over."""
        until = time.monotonic() + self._config.wait_ms / 1000
        with self._freed:  # so that no release is missed between an attempt and the wait
            while True:
                try:
                    return self.lease(shape, dtype, long=long)
                except OutOfMemory:
                    if not self._freed.wait(max(0.0, until - time.monotonic())):
                        raise

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Counts the calling thread's page faults in the context (not those of torch's other threads)."""
        before = minor_faults()
        try:
            yield
        finally:
            after = minor_faults()
            if before is not None and after is not None:
                self._faults = (self._faults or 0) + after - before

    def compact(self) -> None:
        """Compacts now; allocations wait."""
        with self._lock:
            started = self._clock()
            self._compact()
            self._last_compaction = self._clock()
            self._compactions += 1
            self._compaction_seconds += self._last_compaction - started

    def compact_if_due(self) -> bool:
        """Compacts if `compaction_ms` has passed since the last time; called between two batches."""
        period = self._config.compaction_ms / 1000
        if not period or self._clock() - self._last_compaction < period:
            return False
        self.compact()
        return True


class FixedLease:
    """A lease over memory that never moves."""

    def __init__(self, tensor: torch.Tensor, on_release: Callable[[], None] = lambda: None) -> None:
        self._tensor: torch.Tensor | None = tensor
        self._on_release = on_release

    @property
    def tensor(self) -> torch.Tensor:
        if self._tensor is None:
            raise ValueError("the buffer was released")
        return self._tensor

    def release(self) -> None:
        if self._tensor is None:
            raise ValueError("the buffer was released before")
        self._tensor = None
        self._on_release()

    def __enter__(self) -> torch.Tensor:
        return self.tensor

    def __exit__(self, *raised: object) -> None:
        return None
