"""Stories that the driver's and the server's logs tell: Xids, CUDA errors, and parts that do not fit each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from latdoctor.lab.telemetry import logs
from latdoctor.lab.telemetry.boards import A100, H100, SERVED
from latdoctor.lab.telemetry.gpus import DRIVERS, machine
from latdoctor.lab.telemetry.hardware import usual
from latdoctor.lab.telemetry.logs import Entry
from latdoctor.lab.telemetry.story import Scene, Story, promised, triton_service


@dataclass(frozen=True, slots=True)
class _Xid:
    """A code that is a root: what the driver writes, what the process meets, and whether the GPU hangs after it."""

    code: int
    detail: str
    error: str
    hangs: bool


def _xids(scene: Scene, index: int) -> tuple[_Xid, ...]:
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


def reported_by_driver(scene: Scene) -> Story:
    """An Xid, and in its wake those of the channels that were torn down with it."""
    rng = scene.rng
    host = machine(rng, (H100, A100) if rng.random() < 0.5 else SERVED)
    sick = rng.randrange(host.count)
    root = rng.choice(_xids(scene, sick))
    said: list[Entry] = []
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
    return Story(host, tuple(works), promised(service), service, kernel=said, server=server, subjects=(f"gpu/{sick}",))


# What an application's own mistakes look like. None of them is the hardware's.
_CALLS = (
    "worker: CUDA error: invalid argument (cudaErrorInvalidValue) in cudaMemcpyAsync, src/kernels/gather.cu:118",
    "worker: CUDA error: invalid configuration argument, src/kernels/pack.cu:64",
    "worker: RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx",
    "worker: RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "worker: RuntimeError: CUDA error: invalid resource handle",
)
_ASSERT = "worker: RuntimeError: CUDA error: device-side assert triggered"


def failing_calls(scene: Scene) -> Story:
    """A change of kernels or shapes: calls are refused, or an assertion on the device ends the context."""
    rng = scene.rng
    host = machine(rng, SERVED)
    message = rng.choice((*_CALLS, _ASSERT))
    count = round(scene.between(4, 60))
    times = sorted(scene.earlier(2, 600) for _ in range(count))
    server = [(time, "ERROR", message) for time in times]
    said: list[Entry] = []
    if message == _ASSERT:
        sick = rng.randrange(host.count)
        said = [(times[0] + 0.05, logs.xid(host.pci(sick), 43, "Ch 00000008", host.pid))]
    service = triton_service(scene, (1.0,) * host.count, rng.uniform(0.5, 0.62), failures=scene.between(0.01, 0.12))
    return Story(
        host, tuple(usual(scene, host)), promised(service), service, kernel=said, server=server, subjects=("server",)
    )


def parts_do_not_fit(scene: Scene) -> Story:
    """An update without a reload, or an image that wants a newer driver: workers that start again find no GPU."""
    rng = scene.rng
    host = machine(rng, SERVED, at_least=2)
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
        return Story(
            host,
            None,
            promised(service),
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
    return Story(host, works, promised(service), service, server=server, subjects=("node/local",))
