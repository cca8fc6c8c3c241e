"""The C library's allocator: its settings (mallopt), its figures (mallinfo2), through ctypes. glibc only.

Numbers of the options: malloc.h of glibc. What they do: mallopt(3), mallinfo(3), malloc_trim(3).
"""

from __future__ import annotations

import ctypes
import functools
import mmap

from msgspec import Struct

from latdoctor.errors import OperationError

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -2, -3, -4, -8
KIB, MIB = 1 << 10, 1 << 20

# What a large block is here: above it `returning` asks the kernel each time.
LARGE = 64 * KIB


class HeapInfo(Struct, frozen=True):
    """Bytes of the heap: got from the kernel, in use, free, free at its top; and what is mapped block by block."""

    heap: int
    used: int
    free: int
    top: int
    mapped: int
    mapped_blocks: int

    @property
    def reserved(self) -> int:
        return self.heap + self.mapped

    @property
    def inactive(self) -> int:
        """Free, but between blocks in use."""
        return max(0, self.free - self.top)


class _MallInfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


class Glibc:
    """The process's own C library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = (ctypes.c_size_t,)
        library.free.argtypes = (ctypes.c_void_p,)
        library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._has_info = hasattr(library, "mallinfo2")  # glibc 2.33 and later
        if self._has_info:
            library.mallinfo2.restype = _MallInfo2

    def one_heap(self) -> None:
        """Threads started from now on share the main heap, so that one setting governs all of them."""
        self._set(_ARENA_MAX, 1)

    def keep_all(self, reserve: int) -> None:
        """Large blocks too come from the heap, which never shrinks, and has `reserve` bytes more from now on.

        They are touched here, so that no forward pays for their first use. Without memory for it there is no reserve.
        """
        self._set(_MMAP_MAX, 0)
        self._set(_TRIM_THRESHOLD, 2**31 - 1)
        self._set(_TOP_PAD, reserve)
        address = self._library.malloc(reserve)
        if address:
            ctypes.memset(address, 0, reserve)
            self._library.free(address)

    def keep_usual(self) -> None:
        """What the library's own adaptation ends at (M_MMAP_THRESHOLD in mallopt(3)); once set it adapts no more."""
        self._set(_MMAP_MAX, 65536)
        self._set(_MMAP_THRESHOLD, 32 * MIB)
        self._set(_TRIM_THRESHOLD, 64 * MIB)
        self._set(_TOP_PAD, 128 * KIB)

    def return_all(self) -> None:
        """Every large block is mapped for itself and unmapped when freed; the heap's free top goes back."""
        self._set(_MMAP_MAX, 65536)
        self._set(_MMAP_THRESHOLD, LARGE)
        self._set(_TRIM_THRESHOLD, LARGE)
        self._set(_TOP_PAD, 0)
        self.trim()

    def trim(self) -> None:
        """Gives the kernel every free page back."""
        self._library.malloc_trim(0)

    def info(self) -> HeapInfo | None:
        """The heap now; None where the library is too old to tell."""
        if not self._has_info:
            return None
        found = self._library.mallinfo2()
        return HeapInfo(
            heap=found.arena,
            used=found.uordblks,
            free=found.fordblks,
            top=found.keepcost,
            mapped=found.hblkhd,
            mapped_blocks=found.hblks,
        )

    def occupy_holes(self) -> list[int]:
        """Takes the heap's large free holes and gives their pages back; the addresses, for `free`.

        A hole left by an earlier setting would go on serving large blocks: `malloc` looks there before it maps.
        Call it after `return_all`: a block that had to be mapped is the sign that no hole of that size is left.
        A heap in use for long has thousands of them, so none may cost a walk through the heap, as `info` does.
        """
        held: list[int] = []
        size = 256 * MIB
        while size >= LARGE:
            address = self._library.malloc(size)
            if not address or _is_mapped(address):
                self._library.free(address)
                size //= 2
                continue
            start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
            self._library.madvise(start, end - start, mmap.MADV_DONTNEED)
            held.append(address)
        return held

    def free(self, addresses: list[int]) -> None:
        for address in addresses:
            self._library.free(address)

    def _set(self, option: int, value: int) -> None:
        if not self._library.mallopt(option, value):
            raise OperationError(f"the C library refused mallopt({option}, {value})")


def _is_mapped(address: int) -> bool:
    """Whether a block is a mapping of its own: bit IS_MMAPPED of the size that lies before it (malloc.c of glibc)."""
    return bool(ctypes.c_size_t.from_address(address - ctypes.sizeof(ctypes.c_size_t)).value & 2)


@functools.cache
def glibc() -> Glibc | None:
    """The C library if it is glibc, else None."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    return Glibc(library)
