"""Makes holes in the heap, has them occupied, and prints how many there were, were taken, and how often it was walked.

Run in a process of its own: settings of the allocator outlast it.
"""

from __future__ import annotations

import ctypes
import json

from latdoctor.lab.server.memory.glibc import KIB, MIB, Glibc, HeapInfo

HOLES = 1000


class Counted(Glibc):
    """Counts its walks through the heap."""

    walks = 0

    def info(self) -> HeapInfo | None:
        self.walks += 1
        return super().info()


def main() -> None:
    library = ctypes.CDLL(None)
    heap = Counted(library)
    heap.one_heap()
    heap.keep_all(MIB)
    blocks = [library.malloc(100 * KIB) for _ in range(2 * HOLES)]
    for block in blocks[::2]:
        library.free(block)
    heap.return_all()
    held = heap.occupy_holes()
    walks, before = heap.walks, heap.info()
    library.malloc(100 * KIB)
    after = heap.info()
    mapped = after.mapped_blocks - before.mapped_blocks if before and after else None
    print(json.dumps({"held": len(held), "walks": walks, "mapped": mapped}))


main()
