"""Memory backends behind one interface. Loads torch: only the server's process imports this."""

from __future__ import annotations

from collections.abc import Callable

from latdoctor.lab.server.config import Memory
from latdoctor.lab.server.memory.arena import ArenaPool
from latdoctor.lab.server.memory.cuda import CudaPool
from latdoctor.lab.server.memory.glibc import GlibcPool
from latdoctor.lab.server.memory.pool import Lease, MemoryStats, OutOfMemory, Pool

__all__ = ["Lease", "MemoryStats", "OutOfMemory", "Pool", "build"]

_BACKENDS: dict[str, Callable[[Memory], Pool]] = {"glibc": GlibcPool, "arena": ArenaPool, "cuda": CudaPool}


def build(config: Memory) -> Pool:
    """The pool that `config` asks for. Raises UsageError where this machine has no such backend."""
    return _BACKENDS[config.backend](config)
