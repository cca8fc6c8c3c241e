"""Memory backends behind one interface. Loads torch: only the server's process imports this."""

from __future__ import annotations

from collections.abc import Callable

from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory.arena import ArenaPool
from latdoctor.lab.server.memory.cuda import CudaPool
from latdoctor.lab.server.memory.glibc import GlibcPool
from latdoctor.lab.server.memory.pool_interface import MemoryPool

_BACKENDS: dict[str, Callable[[MemoryConfig], MemoryPool]] = {"glibc": GlibcPool, "arena": ArenaPool, "cuda": CudaPool}


def build(config: MemoryConfig) -> MemoryPool:
    """The pool for `config`. Raises UsageError where this machine has no such backend."""
    return _BACKENDS[config.backend](config)
