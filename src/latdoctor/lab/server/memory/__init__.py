"""Memory backends behind one interface. Their modules load torch; the interface does not."""

from __future__ import annotations

from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory.pool_interface import MemoryPool


def build(config: MemoryConfig) -> MemoryPool:
    """The pool for `config`. Loads torch. Raises UsageError where this machine has no such backend."""
    if config.backend == "arena":
        from latdoctor.lab.server.memory.arena import ArenaPool

        return ArenaPool(config)
    if config.backend == "cuda":
        from latdoctor.lab.server.memory.cuda import CudaPool

        return CudaPool(config)
    from latdoctor.lab.server.memory.glibc import GlibcPool

    return GlibcPool(config)
