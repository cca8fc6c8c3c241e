"""Stories of GPUs in trouble, as NVML, the driver's log and the server's page tell them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from latdoctor.lab.telemetry import logs
from latdoctor.lab.telemetry.gpu_load import (
    A10,
    A100,
    H100,
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    LINKED,
    SERVED,
    SW_POWER_CAP,
    SW_THERMAL,
    GpuMachine,
    GpuWork,
    random_machine,
)
from latdoctor.lab.telemetry.nvml import MIB
from latdoctor.lab.telemetry.scenario import FaultParameters, SyntheticIncident, slo_for, triton_service


def usual(scene: FaultParameters, host: GpuMachine) -> list[GpuWork]:
    """Healthy GPUs that work at a bit over half of what they can."""
    rng = scene.rng
    found = []
    for _ in range(host.count):
        busy, warm, power = rng.uniform(0.52, 0.7), rng.uniform(-34, -22), rng.uniform(0.5, 0.68)
        found.append(
            GpuWork(
                utilization=(busy, busy + rng.uniform(-0.04, 0.04)),
                memory=rng.uniform(0.7, 0.86),
                power=(power, power + rng.uniform(-0.02, 0.03)),
                temperature=(warm, warm + rng.uniform(-0.5, 1.5)),
            )
        )
    return found


def _one_sick(
    scene: FaultParameters, host: GpuMachine, sicken: Callable[[GpuWork], GpuWork]
) -> tuple[int, tuple[GpuWork, ...]]:
    works = usual(scene, host)
    sick = scene.rng.randrange(host.count)
    works[sick] = sicken(works[sick])
    return sick, tuple(works)


def _slowed(host: GpuMachine, sick: int, factor: float) -> tuple[float, ...]:
    return tuple(factor if index == sick else 1.0 for index in range(host.count))


def too_hot(scene: FaultParameters) -> SyntheticIncident:
    """A fan failed: the driver holds the GPU at its temperature target, and at worst the hardware steps in."""
    host = random_machine(scene.rng, SERVED)
    clock = scene.between(0.69, 0.36)
    heat = (host.board.target - host.board.slowdown) * (1 - scene.severity)
    reasons = [(SW_THERMAL, scene.between(0.7, 1.0))]
    if scene.severity > 0.6:
        reasons.append((HW_SLOWDOWN | HW_THERMAL, 0.55 * scene.severity))
    sick, works = _one_sick(
        scene,
        host,
        lambda work: replace(
            work,
            utilization=(0.96, 0.99),
            clock=(clock * 1.06, clock * 0.97),
            power=(clock * 0.8, clock * 0.74),
            temperature=(heat - 1.2, heat - 0.4),
            reasons=tuple(reasons),
        ),
    )
    service = triton_service(scene, _slowed(host, sick, 1 / clock), scene.rng.uniform(0.6, 0.7))
    return SyntheticIncident(host, works, slo_for(service), service, subjects=(f"gpu/{sick}",))


def too_little_power(scene: FaultParameters) -> SyntheticIncident:
    """A lowered power limit on one GPU, or a power brake on all of the machine's."""
    rng = scene.rng
    host = random_machine(rng, SERVED)
    clock = scene.between(0.69, 0.4)
    drawn, share = (0.98, 0.99), scene.between(0.85, 1.0)

    def slow(work: GpuWork, bits: int, power: tuple[float, float], limit: float | None) -> GpuWork:
        clocks = (clock * 1.02, clock * 0.98)
        return replace(
            work, utilization=(0.95, 0.99), clock=clocks, reasons=((bits, share),), power=power, power_limit=limit
        )

    if rng.random() < 0.4:
        drawn = (clock * 0.7, clock * 0.68)
        works = tuple(slow(work, HW_SLOWDOWN | HW_POWER_BRAKE, drawn, None) for work in usual(scene, host))
        slower, subjects = (1 / clock,) * host.count, tuple(f"gpu/{index}" for index in range(host.count))
    else:
        limit = round(host.board.power_limit * scene.between(0.66, 0.4) / 5) * 5.0
        sick, works = _one_sick(scene, host, lambda work: slow(work, SW_POWER_CAP, drawn, limit))
        slower, subjects = _slowed(host, sick, 1 / clock), (f"gpu/{sick}",)
    service = triton_service(scene, slower, rng.uniform(0.55, 0.65))
    return SyntheticIncident(host, works, slo_for(service), service, subjects=subjects)


def damaged_memory(scene: FaultParameters) -> SyntheticIncident:
    """A double-bit error: the process dies, and a row waits to be replaced or cannot be."""
    rng = scene.rng
    host = random_machine(rng, (H100, A100, A10))
    worst = scene.severity > 0.6
    errors = max(1, round(scene.between(1, 14)))
    sick, works = _one_sick(
        scene, host, lambda work: replace(work, uncorrectable=errors, remap=(not worst or rng.random() < 0.5, worst))
    )
    pci, time = host.pci(sick), scene.earlier(60, 600)
    partition = f"partition {rng.randint(0, 9)}, subpartition {rng.randint(0, 1)}"
    contained = f"Contained: SM (0x{rng.randint(1, 9)}). RST: No, D-RST: No"
    row = f"Row Remapper: New row (0x{rng.getrandbits(32):016x}) marked for remapping, reset gpu to activate."
    failed = "Row Remapper: Failed to remap row; all reserved rows for bank are remapped."
    said = [
        (
            time,
            logs.xid(
                pci,
                48,
                f"An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at {partition}.",
            ),
        ),
        (time + 0.000_4, logs.xid(pci, 64, failed) if worst else logs.xid(pci, 63, row)),
        (time + 0.002, logs.xid(pci, 94, contained, host.pid)),
        (time + 0.05, logs.xid(pci, 45, "Ch 00000008, intr 00000000. preemptive channel removal", host.pid)),
    ]
    server = [
        (time + 0.1, "ERROR", "worker: CUDA error: uncorrectable ECC error encountered"),
        (time + 8.0, "WARNING", f"supervisor: worker on device {sick} exited with code 134, starting it again"),
    ]
    service = triton_service(
        scene, _slowed(host, sick, 1.0), rng.uniform(0.5, 0.62), failures=scene.between(0.002, 0.05)
    )
    return SyntheticIncident(
        host, works, slo_for(service), service, kernel=said, server=server, subjects=(f"gpu/{sick}",)
    )


def off_the_bus(scene: FaultParameters) -> SyntheticIncident:
    """A GPU that can no longer be reached: before the look, or, where it is milder, in the middle of it."""
    rng = scene.rng
    host = random_machine(rng, SERVED, at_least=2)
    after = 0.0 if scene.severity > 0.6 else rng.uniform(2.0, 7.0)
    sick, works = _one_sick(scene, host, lambda work: replace(work, lost_after=after))
    pci = host.pci(sick)
    time = scene.earlier(40, 300) if after == 0.0 else round(scene.now + after - 0.2, 6)
    if rng.random() < 0.6:
        said = [
            (time, logs.xid(pci, 79, "GPU has fallen off the bus.")),
            (time + 0.000_02, f"NVRM: GPU {pci}.0: GPU has fallen off the bus."),
            (
                time + 0.000_7,
                logs.xid(pci, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
            ),
        ]
    else:  # newer drivers name no number
        said = [
            (time, f"NVRM: The NVIDIA GPU {pci}.0"),
            (
                time + 0.000_01,
                f"NVRM: (PCI ID: 10de:{rng.choice(('2330', '20b2', '2236', '1eb8'))}) installed in this system has",
            ),
            (time + 0.000_02, "NVRM: fallen off the bus and is not responding to commands."),
        ]
    server = [
        (time + 0.4, "ERROR", "worker: CUDA error: unspecified launch failure"),
        (time + 1.1, "ERROR", f"supervisor: worker on device {sick} is gone, {host.count - 1} of {host.count} left"),
    ]
    left = (1.0,) * (host.count - 1)
    load = rng.uniform(0.55, 0.7)
    failures = scene.between(0.005, 0.04)
    service = triton_service(scene, left, load, failures=failures, healthy_instances=host.count)
    return SyntheticIncident(
        host, works, slo_for(service), service, kernel=said, server=server, subjects=(f"gpu/{sick}",)
    )


def memory_full(scene: FaultParameters) -> SyntheticIncident:
    """Batches that no longer fit: the allocator finds nothing left, and requests fail."""
    rng = scene.rng
    host = random_machine(rng, SERVED)
    works = tuple(replace(work, memory=rng.uniform(0.975, 0.998)) for work in usual(scene, host))
    free, total = rng.randint(20, 180), host.board.memory / 1024
    server = []
    for _ in range(round(scene.between(3, 40))):
        wanted = rng.choice((64, 128, 256, 512, 1024))
        message = (
            f"worker: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}.00 MiB. GPU 0 has a total "
            f"capacity of {total:.2f} GiB of which {free}.{rng.randint(10, 99)} MiB is free."
        )
        server.append((scene.earlier(1, 400), "ERROR", message))
    failures = scene.between(0.01, 0.15)
    service = triton_service(
        scene, (scene.between(1.05, 1.4),) * host.count, rng.uniform(0.55, 0.62), failures=failures
    )
    subjects = tuple(f"gpu/{index}" for index in range(host.count))
    return SyntheticIncident(host, works, slo_for(service), service, server=server, subjects=subjects)


def shared_gpu(scene: FaultParameters) -> SyntheticIncident:
    """Somebody else's job came to one of the server's GPUs."""
    rng = scene.rng
    host = random_machine(rng, SERVED, watched=True)
    used = host.board.memory * MIB
    taken = scene.between(0.1, 0.3)
    pids = [host.pid + rng.randint(900, 30_000) for _ in range(1 if scene.severity < 0.7 else 2)]
    each = float(round(used * taken / len(pids) / MIB) * MIB)
    sick, works = _one_sick(
        scene,
        host,
        lambda work: replace(
            work,
            utilization=(0.94, 0.99),
            memory=0.62 + taken,
            power=(0.84, 0.88),
            temperature=(-19.0, -17.0),
            neighbours=tuple((pid, each) for pid in pids),
        ),
    )
    service = triton_service(scene, _slowed(host, sick, scene.between(1.4, 2.8)), rng.uniform(0.6, 0.72))
    return SyntheticIncident(host, works, slo_for(service), service, subjects=(f"gpu/{sick}",))


def poor_link(scene: FaultParameters) -> SyntheticIncident:
    """A riser that makes bad contact: fewer lanes, or a lower generation, and packets that are sent again."""
    rng = scene.rng
    host = random_machine(rng, SERVED)
    best = host.board.generation
    narrow = rng.random() < 0.65
    width = (8 if scene.severity < 0.7 else 4) if narrow else 16
    generation = best if narrow else max(1, best - (1 if scene.severity < 0.7 else 2))
    replays = scene.between(0.9, 6.0)
    sick, works = _one_sick(
        scene, host, lambda work: replace(work, width=width, generation=generation, replays=replays)
    )
    device = f"{host.pci(sick)}.0"
    said = []
    for _ in range(round(scene.between(2, 9))):
        time = scene.earlier(5, 3_000)
        said += [
            (time, f"pcieport {host.pci(sick)[:8]}00.0: AER: Corrected error message received from {device}"),
            (
                time + 0.000_01,
                f"nvidia {device}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
            ),
            (time + 0.000_02, f"nvidia {device}:    [12] Timeout"),
        ]
    slower = 16 / width * 2 ** (best - generation)
    service = triton_service(
        scene, (1.0,) * host.count, rng.uniform(0.6, 0.68), copying=rng.uniform(0.03, 0.06), slower_copies=slower
    )
    return SyntheticIncident(host, works, slo_for(service), service, kernel=said, subjects=(f"gpu/{sick}",))


def bad_nvlink(scene: FaultParameters) -> SyntheticIncident:
    """A link between two GPUs repeats what it sends; both ends count it, and the collective operations wait."""
    rng = scene.rng
    host = random_machine(rng, LINKED)
    works = usual(scene, host)
    ends = sorted(rng.sample(range(host.count), 2))
    links = rng.sample(range(host.board.links), 1 if scene.severity < 0.6 else 2)
    rate = scene.between(0.35, 45)
    for end in ends:
        errors = {link: rate * rng.uniform(0.8, 1.2) for link in links}
        works[end] = replace(works[end], link_errors=errors)
    said = []
    if scene.severity > 0.6:
        registers = ", ".join([f"0x{1 << rng.randint(4, 16):x}", *["0x0"] * 6])
        detail = f"NVLink: fatal error detected on link {links[0]}({registers})"
        time = scene.earlier(20, 400)
        said = [(time, logs.xid(host.pci(ends[0]), 74, detail))]
    service = triton_service(scene, (scene.between(1.15, 2.0),) * host.count, rng.uniform(0.5, 0.6))
    return SyntheticIncident(
        host, tuple(works), slo_for(service), service, kernel=said, subjects=tuple(f"gpu/{end}" for end in ends)
    )
