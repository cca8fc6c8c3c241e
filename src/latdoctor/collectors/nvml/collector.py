"""The GPUs of this machine through NVML: sampled over the window, written down, and parsed apart from that.

Every GPU is read at once and then about twice a second. What the driver does not answer is kept as its own word for
it, so that a missing function of an old driver hides one signal and not the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
    sampling_moments,
)
from latdoctor.collectors.nvml import NAME, SIGNALS, TITLE
from latdoctor.collectors.nvml import evidence as nvml_parse
from latdoctor.collectors.nvml.device_reader import (
    GpuHandle,
    read_cuda_version,
    read_device,
    read_sample,
    read_system,
    refusal,
)
from latdoctor.collectors.nvml.samples import MAX_GPUS, SCHEMA_VERSION, GpuSample, NvmlCode, NvmlRecord, Unavailable
from latdoctor.collectors.proc_pid_stat import parent_pid
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Gap, to_json
from latdoctor.gap_code import GapCode

INTERVAL = 0.5  # seconds between two samples; NVML's own counters are refreshed every 0.17 to 1 s
MAX_SAMPLES = 601  # a longer window is sampled less often

_NO_DRIVER = "see whether `nvidia-smi` answers; in a container, start it with its GPUs (`--gpus all`)"
_ADVICE = {
    NvmlCode.DRIVER_NOT_LOADED: "load the driver (`modprobe nvidia`); the kernel log shows why it is not loaded",
    NvmlCode.NO_PERMISSION: "run as a user that may open /dev/nvidia*",
    NvmlCode.VERSION_MISMATCH: "the driver was updated while loaded: reload it, or reboot",
}


def collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Samples every GPU over `request.window`. Without library, driver or permission that is one gap."""
    import pynvml  # type: ignore[import-untyped]  # it ships no types

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return CollectResult(gaps=(_gap(refusal(error)),))
    try:
        record = _watch(pynvml, request, clock)
    except pynvml.NVMLError as error:
        return CollectResult(gaps=(_gap(refusal(error)),))
    finally:
        _leave(pynvml)
    return CollectResult((Artifact(f"{NAME}.json", NAME, NAME, "NVML of this machine", clock.now(), to_json(record)),))


def _leave(nvml: ModuleType) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        return  # everything that will be said has been read; the process ends soon


def _gap(found: Unavailable) -> Gap:
    return Gap(
        source=NAME,
        reason=f"no GPU can be read: {found.error}",
        signals=tuple(sorted(SIGNALS)),
        next_step=_advice(found),
        code=GapCode.PERMISSION if found.status == NvmlCode.NO_PERMISSION else GapCode.ABSENT,
    )


def _advice(found: Unavailable) -> str:
    return next((advice for code, advice in _ADVICE.items() if code == found.status), _NO_DRIVER)


def _watch(nvml: ModuleType, request: CollectRequest, clock: Clock) -> NvmlRecord:
    """Raises NVMLError where not even the GPUs can be counted."""
    gpus = [GpuHandle(nvml, index) for index in range(min(nvml.nvmlDeviceGetCount(), MAX_GPUS))]
    devices = tuple(read_device(gpu) for gpu in gpus)
    samples: list[GpuSample] = []
    if gpus:
        for moment in sampling_moments(clock, request.window, INTERVAL, MAX_SAMPLES):
            samples.extend(read_sample(gpu, moment.time, links=moment.at_end) for gpu in gpus)
    return NvmlRecord(
        schema_version=SCHEMA_VERSION,
        driver=read_system(nvml, nvml.nvmlSystemGetDriverVersion),
        cuda=read_cuda_version(nvml),
        pid=request.pid,
        own=_own(request.pid, samples),
        devices=devices,
        samples=tuple(samples),
    )


def _own(pid: int | None, samples: Sequence[GpuSample]) -> tuple[int, ...]:
    """The GPU processes that are `pid` or descend from it: servers compute in child processes."""
    if pid is None:
        return ()
    listed = {p.pid for s in samples if not isinstance(s.processes, Unavailable) for p in s.processes}
    return tuple(sorted(candidate for candidate in listed if _descends(candidate, pid)))


def _descends(candidate: int, ancestor: int) -> bool:
    for _ in range(64):
        if candidate == ancestor:
            return True
        parent = parent_pid(candidate)
        if parent is None:
            return False
        candidate = parent
    return False


def preflight() -> Sequence[SourceAvailability]:
    """What NVML shows here: library and driver, then each GPU with what it does not report."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        found = refusal(error)
        return (SourceAvailability(TITLE, Availability.NO, found.error, _advice(found)),)
    try:
        record = _watch(pynvml, CollectRequest(nvml=True, window=0.0), _Still())
    except pynvml.NVMLError as error:
        return (SourceAvailability(TITLE, Availability.NO, refusal(error).error, _NO_DRIVER),)
    finally:
        _leave(pynvml)
    return nvml_parse.availability(record, TITLE)


class _Still:
    """A clock for a single sample."""

    def now(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        return


READER = SourceReader(collect, nvml_parse.parse, preflight)
