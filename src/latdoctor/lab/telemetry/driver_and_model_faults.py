"""Synthetic software faults: Xids, CUDA errors, driver mismatches, inefficient models, and healthy machines."""

from __future__ import annotations

from dataclasses import dataclass, replace

from latdoctor.lab.telemetry import logs
from latdoctor.lab.telemetry.gpu_faults import usual
from latdoctor.lab.telemetry.gpu_load import (
    A10,
    A100,
    DRIVERS,
    H100,
    RTX4080,
    SERVED,
    SW_POWER_CAP,
    T4,
    GpuMachine,
    GpuWork,
    random_machine,
)
from latdoctor.lab.telemetry.incident import (
    FaultParameters,
    ProfilerRecording,
    SyntheticIncident,
    slo_for,
    triton_service,
)
from latdoctor.lab.telemetry.logs import KernelMessage
from latdoctor.lab.telemetry.profiler_trace import ForwardPass, HostSpeed, Precision
from latdoctor.lab.telemetry.tensorrt import EngineState
from latdoctor.lab.telemetry.vllm import Engine, capacity


@dataclass(frozen=True, slots=True)
class _Xid:
    """A root Xid: the driver's text, the error in the process, and whether the GPU hangs afterwards."""

    code: int
    detail: str
    error: str
    hangs: bool


def _xids(fault: FaultParameters, index: int) -> tuple[_Xid, ...]:
    rng = fault.rng
    where = f"(GPC {rng.randint(0, 7)}, TPC {rng.randint(0, 6)}, SM {rng.randint(0, 1)})"
    channel = f"Ch {rng.randint(1, 40):08x}"
    client = f"GPCCLIENT_T1_{rng.randint(0, 15)}"
    address = f"0x{rng.randint(0x7F00, 0x7FFF):x}_{rng.getrandbits(32):08x}"
    mmu_fault = f"{channel}, intr 00000000. MMU Fault: ENGINE GRAPHICS {client} faulted @ {address}."
    illegal, failed = "an illegal memory access was encountered", "unspecified launch failure"
    rpc = f"Timeout after 6s of waiting for RPC response from GPU{index} GSP!"
    return (
        _Xid(13, f"Graphics SM Warp Exception on {where}: Out Of Range Address", illegal, hangs=False),
        _Xid(31, f"{mmu_fault} Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ", illegal, hangs=False),
        _Xid(109, f"{channel}, errorString CTX SWITCH TIMEOUT, Info 0x{rng.getrandbits(20):x}", failed, hangs=True),
        _Xid(119, f"{rpc} Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).", failed, hangs=True),
    )


def xid_fault(fault: FaultParameters) -> SyntheticIncident:
    """An Xid, followed by those of the channels that were closed with it."""
    rng = fault.rng
    host = random_machine(rng, (H100, A100) if rng.random() < 0.5 else SERVED)
    faulty = rng.randrange(host.count)
    root = rng.choice(_xids(fault, faulty))
    messages: list[KernelMessage] = []
    server = []
    for _ in range(max(1, round(fault.between(1, 5)))):
        time = fault.earlier(30, 900)
        messages.append((time, logs.xid(host.pci(faulty), root.code, root.detail, host.pid)))
        for number in range(rng.randint(1, 5)):
            code = rng.choice((43, 45))
            later = time + 0.02 * (number + 1) + rng.uniform(0, 0.9)
            messages.append((later, logs.xid(host.pci(faulty), code, f"Ch {number + 8:08x}", host.pid)))
        server.append((time + 0.3, "ERROR", f"worker: CUDA error: {root.error}"))
        server.append((time + 0.9, "ERROR", f"worker: model forward on device {faulty} failed, request dropped"))
    works = usual(fault, host)
    if root.hangs:
        works[faulty] = replace(works[faulty], utilization=(0.99, 1.0), power=(0.24, 0.23), temperature=(-44.0, -46.0))
    left = host.count - 1 if root.hangs and host.count > 1 else host.count
    failures = fault.between(0.004, 0.08)
    service = triton_service(
        fault, (1.0,) * left, rng.uniform(0.5, 0.62), failures=failures, healthy_instances=host.count
    )
    return SyntheticIncident(
        host, tuple(works), slo_for(service), service, kernel=messages, server=server, subjects=(f"gpu/{faulty}",)
    )


# CUDA errors of application faults, not of hardware.
_CALLS = (
    "worker: CUDA error: invalid argument (cudaErrorInvalidValue) in cudaMemcpyAsync, src/kernels/gather.cu:118",
    "worker: CUDA error: invalid configuration argument, src/kernels/pack.cu:64",
    "worker: RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx",
    "worker: RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "worker: RuntimeError: CUDA error: invalid resource handle",
)
_ASSERT = "worker: RuntimeError: CUDA error: device-side assert triggered"


def cuda_errors(fault: FaultParameters) -> SyntheticIncident:
    """A change of kernels or shapes: calls are refused, or an assertion on the device ends the context."""
    rng = fault.rng
    host = random_machine(rng, SERVED)
    message = rng.choice((*_CALLS, _ASSERT))
    count = round(fault.between(4, 60))
    times = sorted(fault.earlier(2, 600) for _ in range(count))
    server = [(time, "ERROR", message) for time in times]
    messages: list[KernelMessage] = []
    if message == _ASSERT:
        faulty = rng.randrange(host.count)
        messages = [(times[0] + 0.05, logs.xid(host.pci(faulty), 43, "Ch 00000008", host.pid))]
    service = triton_service(fault, (1.0,) * host.count, rng.uniform(0.5, 0.62), failures=fault.between(0.01, 0.12))
    return SyntheticIncident(
        host, tuple(usual(fault, host)), slo_for(service), service, kernel=messages, server=server, subjects=("server",)
    )


def driver_mismatch(fault: FaultParameters) -> SyntheticIncident:
    """An update without a reload, or an image that needs a newer driver: restarted workers find no GPU."""
    rng = fault.rng
    host = random_machine(rng, SERVED, at_least=2)
    gone = max(1, round(fault.between(0.2, 0.6) * host.count))
    works = tuple(usual(fault, host))
    load, failures = rng.uniform(0.5, 0.62), fault.between(0.002, 0.04)
    left = (1.0,) * max(1, host.count - gone)
    service = triton_service(fault, left, load, failures=failures, healthy_instances=host.count)
    starts = sorted(fault.earlier(30, 900) for _ in range(2 * gone))
    if rng.random() < 0.5:
        newer = rng.choice([driver for driver, _, _ in DRIVERS if driver != host.driver])
        line = (
            f"NVRM: API mismatch: the client has the version {newer}, but NVRM: this kernel module has the version "
            f"{host.driver}. Please make sure that this kernel module and all NVIDIA driver components "
            "have the same version."
        )
        message = "worker: Failed to initialize NVML: Driver/library version mismatch"
        return SyntheticIncident(
            host,
            None,
            slo_for(service),
            service,
            kernel=[(time, line) for time in starts],
            server=[(time + 0.2, "ERROR", message) for time in starts],
            unseen="rm has detected an nvml/rm version mismatch.",
            subjects=("node/local",),
        )
    message = rng.choice(
        (
            f"worker: RuntimeError: The NVIDIA driver on your system is too old (found version {12020}).",
            "worker: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
            "worker: CUDA error: system has unsupported display driver / cuda driver combination",
        )
    )
    server = [(time, "ERROR", message) for time in starts]
    return SyntheticIncident(host, works, slo_for(service), service, server=server, subjects=("node/local",))


_TRACED = (H100, A100, A10)


def _traced(
    fault: FaultParameters,
    work: ForwardPass,
    busy: float,
    slower: float,
    *,
    pace: HostSpeed | None = None,
    tensorrt: EngineState | None = None,
) -> SyntheticIncident:
    """A server with a profiler trace: healthy GPUs at utilisation `busy`, passes `slower` times as long."""
    rng = fault.rng
    host = random_machine(rng, _TRACED)
    works = tuple(replace(one, utilization=(busy, busy), power=(0.3 + busy * 0.4,) * 2) for one in usual(fault, host))
    service = triton_service(fault, (slower,) * host.count, rng.uniform(0.42, 0.5))
    recording = ProfilerRecording(work, pace or HostSpeed(operator=rng.uniform(7.5, 11)), rng.randint(3, 6))
    return SyntheticIncident(
        host, works, slo_for(service), service, recording=recording, tensorrt=tensorrt, subjects=("trace",)
    )


def launch_bound(fault: FaultParameters) -> SyntheticIncident:
    """A small model in eager mode: each kernel is shorter than the launch of the next."""
    rng = fault.rng
    work = ForwardPass(layers=rng.choice((6, 12)), size=fault.between(0.085, 0.02), fused=False, inputs=4_096)
    return _traced(fault, work, fault.between(0.5, 0.22), fault.between(1.3, 2.1))


def sync_stalls(fault: FaultParameters) -> SyntheticIncident:
    """Values are read back in every layer, each for a branch in Python."""
    rng = fault.rng
    work = ForwardPass(layers=rng.choice((8, 12)), size=fault.between(0.3, 0.2), reads_back=round(fault.between(3, 7)))
    return _traced(fault, work, fault.between(0.7, 0.45), fault.between(1.25, 1.9))


def host_device_copies(fault: FaultParameters) -> SyntheticIncident:
    """State is copied to the device and back in each layer, through pageable memory."""
    rng = fault.rng
    size = round(fault.between(1.0, 6.0) * (1 << 20)) // 4096 * 4096
    work = ForwardPass(layers=rng.choice((6, 8)), size=rng.uniform(0.45, 0.6), states=size, pinned=False)
    return _traced(fault, work, fault.between(0.45, 0.2), fault.between(1.4, 2.1))


def missed_fusion(fault: FaultParameters) -> SyntheticIncident:
    """Unfused pointwise operators, and an engine with format conversions between its layers."""
    work = ForwardPass(layers=12, size=fault.rng.uniform(0.8, 1.1), fused=False)
    return _traced(fault, work, 0.93, fault.between(1.15, 1.7), tensorrt=EngineState.DANGLING)


def precision_fallback(fault: FaultParameters) -> SyntheticIncident:
    """Matrix products in FP32 without tensor cores, in an engine built for INT8 and FP16."""
    work = ForwardPass(layers=8, size=fault.rng.uniform(0.5, 0.8), precision=Precision.SINGLE)
    return _traced(fault, work, 0.97, fault.between(1.3, 2.1), tensorrt=EngineState.FALLEN_BACK)


def kv_pressure(fault: FaultParameters) -> SyntheticIncident:
    """More tokens in flight than the KV cache has blocks for: requests wait, and running ones are preempted."""
    rng = fault.rng
    host = random_machine(rng, (H100, A100))
    blocks = rng.randint(3_000, 4_000)
    prompt, output = rng.uniform(140, 240), rng.uniform(280, 380)
    carried = capacity(blocks, prompt, output)
    rate = carried * fault.between(1.08, 1.4)
    engine = Engine(rate, carried * 0.6, rng.uniform(40, 70), blocks, prompt, output)
    works = tuple(_generating(fault, host) for _ in range(host.count))
    return SyntheticIncident(host, works, slo=45.0, engine=engine, subjects=("server",))


def _generating(fault: FaultParameters, host: GpuMachine) -> GpuWork:
    """A GPU of a text-generation engine, which reserves its memory at start."""
    rng = fault.rng
    warm = rng.uniform(-26, -18)
    return GpuWork(utilization=(0.96, 0.98), memory=rng.uniform(0.905, 0.925), temperature=(warm, warm + 1))


def healthy(fault: FaultParameters) -> SyntheticIncident:
    """A healthy machine."""
    rng = fault.rng
    host = random_machine(rng, SERVED, watched=rng.random() < 0.5)
    service = triton_service(fault, (1.0,) * host.count, rng.uniform(0.4, 0.6))
    recording = ProfilerRecording(ForwardPass(size=rng.uniform(0.9, 1.3)), HostSpeed(), 4)
    return SyntheticIncident(
        host, tuple(usual(fault, host)), slo_for(service), service, recording=recording, tensorrt=EngineState.SOUND
    )


def busy(fault: FaultParameters) -> SyntheticIncident:
    """A healthy, busy machine: GPUs at 95 % utilisation, at times at their power limit."""
    rng = fault.rng
    host = random_machine(rng, (H100, A100, A10), watched=rng.random() < 0.5)
    works = []
    for _ in range(host.count):
        warm = rng.uniform(-16, -12)
        works.append(
            GpuWork(
                utilization=(0.95, 0.96),
                memory=rng.uniform(0.9, 0.93),
                clock=(rng.uniform(0.92, 0.95), rng.uniform(0.92, 0.95)),
                power=(0.88, 0.93),
                temperature=(warm, warm + 1),
                reasons=((SW_POWER_CAP, 0.25),),
            )
        )
    messages = []
    if rng.random() < 0.5:  # the process was replaced by a rollout an hour ago
        messages = [(fault.earlier(3_000, 4_000), logs.xid(host.pci(0), 45, "Ch 00000008", host.pid - 700))]
    recording = ProfilerRecording(ForwardPass(size=rng.uniform(1.0, 1.4)), HostSpeed(), 4)
    if rng.random() < 0.5:
        engine = Engine(rate=14.0, before=14.0, onset=20.0, blocks=4_200, prompt=500, output=140)
        return SyntheticIncident(host, tuple(works), 30.0, engine=engine, kernel=messages, recording=recording)
    service = triton_service(fault, (1.0,) * host.count, rng.uniform(0.74, 0.8))
    incident = SyntheticIncident(
        host, tuple(works), slo_for(service, 4.3), service, kernel=messages, recording=recording
    )
    return replace(incident, tensorrt=EngineState.SOUND)


def idle(fault: FaultParameters) -> SyntheticIncident:
    """A healthy, idle machine: low clocks, links and boards in power-saving states."""
    rng = fault.rng
    host = random_machine(rng, (H100, A100, A10, T4, RTX4080))
    cool = rng.uniform(-58, -50)
    works = tuple(
        GpuWork(utilization=(0.0, 0.0), memory=rng.uniform(0.2, 0.6), temperature=(cool, cool), generation=None)
        for _ in range(host.count)
    )
    service = triton_service(fault, (1.0,) * host.count, 0.5)
    quiet = replace(service, rate=rng.uniform(0.2, 0.8))
    return SyntheticIncident(host, works, slo_for(service), quiet)
