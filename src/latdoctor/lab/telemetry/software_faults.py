"""Stories that the driver's and the server's logs tell: Xids, CUDA errors, and parts that do not fit each other."""

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
from latdoctor.lab.telemetry.logs import KernelMessage
from latdoctor.lab.telemetry.profiler_trace import ForwardPass, HostSpeed
from latdoctor.lab.telemetry.scenario import (
    FaultParameters,
    ProfilerRecording,
    SyntheticIncident,
    slo_for,
    triton_service,
)
from latdoctor.lab.telemetry.tensorrt import DANGLING, FALLEN_BACK, SOUND
from latdoctor.lab.telemetry.vllm import Engine, capacity


@dataclass(frozen=True, slots=True)
class _Xid:
    """A code that is a root: what the driver writes, what the process meets, and whether the GPU hangs after it."""

    code: int
    detail: str
    error: str
    hangs: bool


def _xids(scene: FaultParameters, index: int) -> tuple[_Xid, ...]:
    rng = scene.rng
    where = f"(GPC {rng.randint(0, 7)}, TPC {rng.randint(0, 6)}, SM {rng.randint(0, 1)})"
    channel = f"Ch {rng.randint(1, 40):08x}"
    client = f"GPCCLIENT_T1_{rng.randint(0, 15)}"
    address = f"0x{rng.randint(0x7F00, 0x7FFF):x}_{rng.getrandbits(32):08x}"
    fault = f"{channel}, intr 00000000. MMU Fault: ENGINE GRAPHICS {client} faulted @ {address}."
    illegal, failed = "an illegal memory access was encountered", "unspecified launch failure"
    rpc = f"Timeout after 6s of waiting for RPC response from GPU{index} GSP!"
    return (
        _Xid(13, f"Graphics SM Warp Exception on {where}: Out Of Range Address", illegal, hangs=False),
        _Xid(31, f"{fault} Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ", illegal, hangs=False),
        _Xid(109, f"{channel}, errorString CTX SWITCH TIMEOUT, Info 0x{rng.getrandbits(20):x}", failed, hangs=True),
        _Xid(119, f"{rpc} Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).", failed, hangs=True),
    )


def reported_by_driver(scene: FaultParameters) -> SyntheticIncident:
    """An Xid, and in its wake those of the channels that were torn down with it."""
    rng = scene.rng
    host = random_machine(rng, (H100, A100) if rng.random() < 0.5 else SERVED)
    sick = rng.randrange(host.count)
    root = rng.choice(_xids(scene, sick))
    said: list[KernelMessage] = []
    server = []
    for _ in range(max(1, round(scene.between(1, 5)))):
        time = scene.earlier(30, 900)
        said.append((time, logs.xid(host.pci(sick), root.code, root.detail, host.pid)))
        for number in range(rng.randint(1, 5)):
            code = rng.choice((43, 45))
            later = time + 0.02 * (number + 1) + rng.uniform(0, 0.9)
            said.append((later, logs.xid(host.pci(sick), code, f"Ch {number + 8:08x}", host.pid)))
        server.append((time + 0.3, "ERROR", f"worker: CUDA error: {root.error}"))
        server.append((time + 0.9, "ERROR", f"worker: model forward on device {sick} failed, request dropped"))
    works = usual(scene, host)
    if root.hangs:
        works[sick] = replace(works[sick], utilization=(0.99, 1.0), power=(0.24, 0.23), temperature=(-44.0, -46.0))
    left = host.count - 1 if root.hangs and host.count > 1 else host.count
    failures = scene.between(0.004, 0.08)
    service = triton_service(
        scene, (1.0,) * left, rng.uniform(0.5, 0.62), failures=failures, healthy_instances=host.count
    )
    return SyntheticIncident(
        host, tuple(works), slo_for(service), service, kernel=said, server=server, subjects=(f"gpu/{sick}",)
    )


# What an application's own mistakes look like. None of them is the hardware's.
_CALLS = (
    "worker: CUDA error: invalid argument (cudaErrorInvalidValue) in cudaMemcpyAsync, src/kernels/gather.cu:118",
    "worker: CUDA error: invalid configuration argument, src/kernels/pack.cu:64",
    "worker: RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx",
    "worker: RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "worker: RuntimeError: CUDA error: invalid resource handle",
)
_ASSERT = "worker: RuntimeError: CUDA error: device-side assert triggered"


def failing_calls(scene: FaultParameters) -> SyntheticIncident:
    """A change of kernels or shapes: calls are refused, or an assertion on the device ends the context."""
    rng = scene.rng
    host = random_machine(rng, SERVED)
    message = rng.choice((*_CALLS, _ASSERT))
    count = round(scene.between(4, 60))
    times = sorted(scene.earlier(2, 600) for _ in range(count))
    server = [(time, "ERROR", message) for time in times]
    said: list[KernelMessage] = []
    if message == _ASSERT:
        sick = rng.randrange(host.count)
        said = [(times[0] + 0.05, logs.xid(host.pci(sick), 43, "Ch 00000008", host.pid))]
    service = triton_service(scene, (1.0,) * host.count, rng.uniform(0.5, 0.62), failures=scene.between(0.01, 0.12))
    return SyntheticIncident(
        host, tuple(usual(scene, host)), slo_for(service), service, kernel=said, server=server, subjects=("server",)
    )


def parts_do_not_fit(scene: FaultParameters) -> SyntheticIncident:
    """An update without a reload, or an image that wants a newer driver: workers that start again find no GPU."""
    rng = scene.rng
    host = random_machine(rng, SERVED, at_least=2)
    gone = max(1, round(scene.between(0.2, 0.6) * host.count))
    works = tuple(usual(scene, host))
    load, failures = rng.uniform(0.5, 0.62), scene.between(0.002, 0.04)
    left = (1.0,) * max(1, host.count - gone)
    service = triton_service(scene, left, load, failures=failures, healthy_instances=host.count)
    starts = sorted(scene.earlier(30, 900) for _ in range(2 * gone))
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
    scene: FaultParameters,
    work: ForwardPass,
    busy: float,
    slower: float,
    *,
    pace: HostSpeed | None = None,
    tensorrt: str = "",
) -> SyntheticIncident:
    """A server of which a trace was taken. Its GPUs are sound and `busy`; a pass takes `slower` times as long."""
    rng = scene.rng
    host = random_machine(rng, _TRACED)
    works = tuple(replace(one, utilization=(busy, busy), power=(0.3 + busy * 0.4,) * 2) for one in usual(scene, host))
    service = triton_service(scene, (slower,) * host.count, rng.uniform(0.42, 0.5))
    recording = ProfilerRecording(work, pace or HostSpeed(operator=rng.uniform(7.5, 11)), rng.randint(3, 6))
    return SyntheticIncident(
        host, works, slo_for(service), service, recording=recording, tensorrt=tensorrt, subjects=("trace",)
    )


def tiny_kernels(scene: FaultParameters) -> SyntheticIncident:
    """A small model, eagerly: each kernel is shorter than the launch of the next."""
    rng = scene.rng
    work = ForwardPass(layers=rng.choice((6, 12)), size=scene.between(0.085, 0.02), fused=False, inputs=4_096)
    return _traced(scene, work, scene.between(0.5, 0.22), scene.between(1.3, 2.1))


def waits_in_the_middle(scene: FaultParameters) -> SyntheticIncident:
    """Values are read back in every layer, and a branch in Python hangs on each."""
    rng = scene.rng
    work = ForwardPass(layers=rng.choice((8, 12)), size=scene.between(0.3, 0.2), reads_back=round(scene.between(3, 7)))
    return _traced(scene, work, scene.between(0.7, 0.45), scene.between(1.25, 1.9))


def copies(scene: FaultParameters) -> SyntheticIncident:
    """State lives on the host and goes to the device and back in each layer, through pageable memory."""
    rng = scene.rng
    size = round(scene.between(1.0, 6.0) * (1 << 20)) // 4096 * 4096
    work = ForwardPass(layers=rng.choice((6, 8)), size=rng.uniform(0.45, 0.6), states=size, pinned=False)
    return _traced(scene, work, scene.between(0.45, 0.2), scene.between(1.4, 2.1))


def unfused(scene: FaultParameters) -> SyntheticIncident:
    """Pointwise operators one by one, and an engine with conversions left between its layers."""
    work = ForwardPass(layers=12, size=scene.rng.uniform(0.8, 1.1), fused=False)
    return _traced(scene, work, 0.93, scene.between(1.15, 1.7), tensorrt=DANGLING)


def wider_type(scene: FaultParameters) -> SyntheticIncident:
    """Matrix products in FP32, without tensor cores, in an engine that was meant to compute in 8 and 16 bits."""
    work = ForwardPass(layers=8, size=scene.rng.uniform(0.5, 0.8), precision="single")
    return _traced(scene, work, 0.97, scene.between(1.3, 2.1), tensorrt=FALLEN_BACK)


def full_cache(scene: FaultParameters) -> SyntheticIncident:
    """More text in flight than the KV cache has blocks for: requests wait, and running ones are thrown back."""
    rng = scene.rng
    host = random_machine(rng, (H100, A100))
    blocks = rng.randint(3_000, 4_000)
    prompt, output = rng.uniform(140, 240), rng.uniform(280, 380)
    carried = capacity(blocks, prompt, output)
    rate = carried * scene.between(1.08, 1.4)
    engine = Engine(rate, carried * 0.6, rng.uniform(40, 70), blocks, prompt, output)
    works = tuple(_generating(scene, host) for _ in range(host.count))
    return SyntheticIncident(host, works, slo=45.0, engine=engine, subjects=("server",))


def _generating(scene: FaultParameters, host: GpuMachine) -> GpuWork:
    """The GPU of an engine that generates text: its memory is reserved by design."""
    rng = scene.rng
    warm = rng.uniform(-26, -18)
    return GpuWork(utilization=(0.96, 0.98), memory=rng.uniform(0.905, 0.925), temperature=(warm, warm + 1))


def healthy(scene: FaultParameters) -> SyntheticIncident:
    """Nothing is wrong."""
    rng = scene.rng
    host = random_machine(rng, SERVED, watched=rng.random() < 0.5)
    service = triton_service(scene, (1.0,) * host.count, rng.uniform(0.4, 0.6))
    recording = ProfilerRecording(ForwardPass(size=rng.uniform(0.9, 1.3)), HostSpeed(), 4)
    return SyntheticIncident(
        host, tuple(usual(scene, host)), slo_for(service), service, recording=recording, tensorrt=SOUND
    )


def busy(scene: FaultParameters) -> SyntheticIncident:
    """Nothing is wrong, and the GPUs are nearly always at work; now and then they touch their power limit."""
    rng = scene.rng
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
    said = []
    if rng.random() < 0.5:  # a roll-out an hour ago ended the process before
        said = [(scene.earlier(3_000, 4_000), logs.xid(host.pci(0), 45, "Ch 00000008", host.pid - 700))]
    recording = ProfilerRecording(ForwardPass(size=rng.uniform(1.0, 1.4)), HostSpeed(), 4)
    if rng.random() < 0.5:
        engine = Engine(rate=14.0, before=14.0, onset=20.0, blocks=4_200, prompt=500, output=140)
        return SyntheticIncident(host, tuple(works), 30.0, engine=engine, kernel=said, recording=recording)
    service = triton_service(scene, (1.0,) * host.count, rng.uniform(0.74, 0.8))
    story = SyntheticIncident(host, tuple(works), slo_for(service, 4.3), service, kernel=said, recording=recording)
    return replace(story, tensorrt=SOUND)


def idle(scene: FaultParameters) -> SyntheticIncident:
    """Nothing is wrong, and hardly anybody asks: clocks are low, and links and boards power down."""
    rng = scene.rng
    host = random_machine(rng, (H100, A100, A10, T4, RTX4080))
    cool = rng.uniform(-58, -50)
    works = tuple(
        GpuWork(utilization=(0.0, 0.0), memory=rng.uniform(0.2, 0.6), temperature=(cool, cool), generation=None)
        for _ in range(host.count)
    )
    service = triton_service(scene, (1.0,) * host.count, 0.5)
    quiet = replace(service, rate=rng.uniform(0.2, 0.8))
    return SyntheticIncident(host, works, slo_for(service), quiet)
