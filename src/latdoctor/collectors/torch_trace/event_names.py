"""What the names in a trace mean: categories of events, kinds of CUDA and HIP calls, directions of copies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.collectors.torch_trace.disk_spill import Numbers


# The categories that Kineto has used, old and new, lower case.
OPERATORS = frozenset({"cpu_op", "operator"})
KERNELS = frozenset({"kernel"})
COPIES = frozenset({"gpu_memcpy", "memcpy"})
FILLS = frozenset({"gpu_memset", "memset"})
CALLS = frozenset({"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver"})
RANGES = frozenset({"cuda_profiler_range"})
# The profiler's own envelope is as long as the recording, whatever happened in it.
ENVELOPES = frozenset({"trace"})
# Echoes on the GPU's lanes of what the host did; not work of the GPU.
ECHOES = frozenset({"gpu_user_annotation"})

LAUNCH, ALLOCATE, FREE, SYNCHRONISE, COPY = "launch", "allocate", "free", "synchronise", "copy"
LOAD, OTHER = "load", "other"

# What the name of an event on the host's side may tell.
STEP, COMPILES, LAYER = "step", "compiles", "layer"
_STEP, LAYER_PREFIX = "ProfilerStep#", "nn.Module: "
# torch.compile and Triton at work, as record_function marks, operators and Python frames name them. Compilations lie
# inside one another, so only the time that they cover means anything.
_COMPILES = re.compile(
    r"_compile\.compile_inner|entire_frame_compile|\bcompile_inner\b|\(dynamo_timed\)"
    r"|_inductor/compile_fx\.py\(\d+\): (?:compile_fx|compile_fx_inner)$|triton/compiler/compiler\.py\(\d+\): compile$"
)

_API = r"(?:cuda|cu(?!da)|hip)"
# The driver's names count as much as the runtime's: compiled kernels are launched by cuLaunchKernel, and expandable
# segments are allocated by cuMemCreate and cuMemMap. Pinned host memory is no device memory.
_KINDS = (
    (LAUNCH, re.compile(rf"{_API}(?!LaunchHostFunc)\w*Launch")),
    (
        ALLOCATE,
        re.compile(
            rf"{_API}(?:Malloc(?!Host|MipmappedArray)|MemAlloc(?!Host)|MemCreate|MemMap(?!Array))|hipExtMallocWithFlags"
        ),
    ),
    (FREE, re.compile(rf"{_API}(?:Free(?!Host|MipmappedArray)|MemFree(?!Host)|MemRelease|MemUnmap)")),
    (SYNCHRONISE, re.compile(rf"{_API}\w*Synchronize")),
    (LOAD, re.compile(rf"(?:{_API}(?:Module|Library)(?:Load|Compile)|nvrtcCompile|hiprtcCompile)")),
    (COPY, re.compile(rf"{_API}(?:Graph)?Mem(?:cpy|set|Prefetch)")),
)

_HOST_TO_DEVICE = re.compile(r"HtoD|HostToDevice", re.IGNORECASE)
_DEVICE_TO_HOST = re.compile(r"DtoH|DeviceToHost", re.IGNORECASE)
_DEVICE_TO_DEVICE = re.compile(r"DtoD|DeviceToDevice", re.IGNORECASE)
_PEER = re.compile(r"PtoP|PeerToPeer", re.IGNORECASE)
_MEMORIES = re.compile(r"\(\w+ -> \w+\)")

NOT_READY = 600  # cudaErrorNotReady: how a query says "still running", no failure


def kind_of_call(name: str) -> str:
    """One of LAUNCH, ALLOCATE, FREE, SYNCHRONISE (blocks the host), COPY, LOAD (of compiled code), OTHER."""
    return next((kind for kind, pattern in _KINDS if pattern.match(name)), OTHER)


def meaning_of(name: str) -> str:
    """STEP, COMPILES, LAYER, or `` for a name on the host's side that tells nothing of the kind."""
    if name.startswith(_STEP):
        return STEP
    if name.startswith(LAYER_PREFIX):
        return LAYER
    return COMPILES if _COMPILES.search(name[:400]) else ""


def direction_of_copy(name: str) -> str:
    """`HtoD`, `DtoH`, `DtoD` (within a device), `PtoP` (between two), or `other` where the name does not tell."""
    if _HOST_TO_DEVICE.search(name):
        return "HtoD"
    if _DEVICE_TO_HOST.search(name):
        return "DtoH"
    if _PEER.search(name):
        return "PtoP"
    return "DtoD" if _DEVICE_TO_DEVICE.search(name) else "other"


def host_memory_of_copy(name: str) -> str:
    """`pageable`, `pinned`, or `` where the name does not tell (`Memcpy HtoD (Pageable -> Device)` does)."""
    if not _MEMORIES.search(name):
        return ""
    return "pageable" if "Pageable" in name else "pinned"


def is_failure(result: int | str) -> bool:
    """Does this return code tell of a failed call?"""
    if isinstance(result, str):
        return result not in {"0", "cudaSuccess", "CUDA_SUCCESS", "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", ""}
    return result not in {0, NOT_READY}


Name = str | int | float | None

MAX_NAMES = 4096
FURTHER = "(further names)"  # what every name beyond them is called
_INSTANCE = re.compile(r"_\d+$")
_LONGEST = 120  # characters shown of a name
_LONGEST_KEPT = 4096  # of one that is looked up


class Names(dict[Name, int]):
    """Numbers names as they are looked up; `listed` are the names, made harmless, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self._shown: dict[str, int] = {}

    def __missing__(self, name: Name) -> int:
        code = self._coded(name, self.number(clean("" if name is None else str(name), _LONGEST)))
        if len(self) < MAX_NAMES and (not isinstance(name, str) or len(name) <= _LONGEST_KEPT):
            self[name] = code
        return code

    def _coded(self, name: Name, number: int) -> int:
        """What is looked up for `name`, whose number this is."""
        return number

    def number(self, shown: str) -> int:
        """The number of a name that is clean already."""
        if shown not in self._shown:
            if len(self.listed) >= MAX_NAMES:
                shown = FURTHER
            if shown not in self._shown:
                self._shown[shown] = len(self.listed)
                self.listed.append(shown)
        return self._shown[shown]

    def of(self, names: Sequence[Name]) -> Numbers:
        return np.fromiter(map(self.__getitem__, names), np.int32, len(names))

    def of_few(self, names: Sequence[Name]) -> Numbers:
        """The same, faster where they are mostly all the same; there must be one."""
        if names.count(names[0]) == len(names):
            return np.full(len(names), self[names[0]], np.int32)
        return self.of(names)

    def renumbered(self, listed: Iterable[str]) -> Numbers:
        """For each name of another numbering, its number in this one; never empty."""
        return np.array([self.number(shown) for shown in listed] or [0], np.int32)


class MarkedNames(Names):
    """Looks up twice the number of a name, and one more where the name tells something (see Marks): one look for both,
    since traces hold more operators than anything else.
    """

    def _coded(self, name: Name, number: int) -> int:
        return 2 * number + bool(meaning_of(name if isinstance(name, str) else ""))


class Marks(dict[str | None, str]):
    """What a name of the host's side tells: api_calls.STEP, COMPILES or LAYER, or `` for nothing."""

    def __missing__(self, name: str | None) -> str:
        found = meaning_of(name or "")
        # Steps and functions are numbered without end; what is not kept is looked at again.
        if len(self) < MAX_NAMES and len(name or "") <= _LONGEST_KEPT:
            self[name] = found
        return found


def layer_class(name: str) -> str:
    """`nn.Module: Linear_9` → `Linear`: what the layers of one kind are called together."""
    return clean(_INSTANCE.sub("", name.removeprefix(LAYER_PREFIX)), _LONGEST) or name
