"""Synthetic GPU faults, in NVML samples, the driver's log and the server's metrics page."""

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
from latdoctor.lab.telemetry.incident import FaultParameters, SyntheticIncident, slo_for, triton_service
from latdoctor.lab.telemetry.nvml import MIB


def usual(fault: FaultParameters, host: GpuMachine) -> list[GpuWork]:
    """Healthy GPUs at 52 to 70 % utilisation."""
    rng = fault.rng
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


def _one_faulty(
    fault: FaultParameters, host: GpuMachine, degrade: Callable[[GpuWork], GpuWork]
) -> tuple[int, tuple[GpuWork, ...]]:
    works = usual(fault, host)
    faulty = fault.rng.randrange(host.count)
    works[faulty] = degrade(works[faulty])
    return faulty, tuple(works)


def _slower_at(host: GpuMachine, faulty: int, factor: float) -> tuple[float, ...]:
    return tuple(factor if index == faulty else 1.0 for index in range(host.count))


def thermal_throttle(fault: FaultParameters) -> SyntheticIncident:
    """A failed fan: the driver throttles the GPU at its temperature target, in severe cases the hardware too."""
    host = random_machine(fault.rng, SERVED)
    clock = fault.between(0.69, 0.36)
    heat = (host.board.target - host.board.slowdown) * (1 - fault.severity)
    reasons = [(SW_THERMAL, fault.between(0.7, 1.0))]
    if fault.severity > 0.6:
        reasons.append((HW_SLOWDOWN | HW_THERMAL, 0.55 * fault.severity))
    faulty, works = _one_faulty(
        fault,
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
    service = triton_service(fault, _slower_at(host, faulty, 1 / clock), fault.rng.uniform(0.6, 0.7))
    return SyntheticIncident(host, works, slo_for(service), service, subjects=(f"gpu/{faulty}",))


def power_throttle(fault: FaultParameters) -> SyntheticIncident:
    """A lowered power limit on one GPU, or a power brake on all of the machine's."""
    rng = fault.rng
    host = random_machine(rng, SERVED)
    clock = fault.between(0.69, 0.4)
    drawn, share = (0.98, 0.99), fault.between(0.85, 1.0)

    def slow(work: GpuWork, bits: int, power: tuple[float, float], limit: float | None) -> GpuWork:
        clocks = (clock * 1.02, clock * 0.98)
        return replace(
            work, utilization=(0.95, 0.99), clock=clocks, reasons=((bits, share),), power=power, power_limit=limit
        )

    if rng.random() < 0.4:
        drawn = (clock * 0.7, clock * 0.68)
        works = tuple(slow(work, HW_SLOWDOWN | HW_POWER_BRAKE, drawn, None) for work in usual(fault, host))
        slower, subjects = (1 / clock,) * host.count, tuple(f"gpu/{index}" for index in range(host.count))
    else:
        limit = round(host.board.power_limit * fault.between(0.66, 0.4) / 5) * 5.0
        faulty, works = _one_faulty(fault, host, lambda work: slow(work, SW_POWER_CAP, drawn, limit))
        slower, subjects = _slower_at(host, faulty, 1 / clock), (f"gpu/{faulty}",)
    service = triton_service(fault, slower, rng.uniform(0.55, 0.65))
    return SyntheticIncident(host, works, slo_for(service), service, subjects=subjects)


def ecc_errors(fault: FaultParameters) -> SyntheticIncident:
    """A double-bit error: the process exits, and the row is remapped or cannot be."""
    rng = fault.rng
    host = random_machine(rng, (H100, A100, A10))
    worst = fault.severity > 0.6
    errors = max(1, round(fault.between(1, 14)))
    faulty, works = _one_faulty(
        fault, host, lambda work: replace(work, uncorrectable=errors, remap=(not worst or rng.random() < 0.5, worst))
    )
    pci, time = host.pci(faulty), fault.earlier(60, 600)
    partition = f"partition {rng.randint(0, 9)}, subpartition {rng.randint(0, 1)}"
    contained = f"Contained: SM (0x{rng.randint(1, 9)}). RST: No, D-RST: No"
    row = f"Row Remapper: New row (0x{rng.getrandbits(32):016x}) marked for remapping, reset gpu to activate."
    failed = "Row Remapper: Failed to remap row; all reserved rows for bank are remapped."
    double = f"An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at {partition}."
    messages = [
        (time, logs.xid(pci, 48, double)),
        (time + 0.000_4, logs.xid(pci, 64, failed) if worst else logs.xid(pci, 63, row)),
        (time + 0.002, logs.xid(pci, 94, contained, host.pid)),
        (time + 0.05, logs.xid(pci, 45, "Ch 00000008, intr 00000000. preemptive channel removal", host.pid)),
    ]
    server = [
        (time + 0.1, "ERROR", "worker: CUDA error: uncorrectable ECC error encountered"),
        (time + 8.0, "WARNING", f"supervisor: worker on device {faulty} exited with code 134, starting it again"),
    ]
    service = triton_service(
        fault, _slower_at(host, faulty, 1.0), rng.uniform(0.5, 0.62), failures=fault.between(0.002, 0.05)
    )
    return SyntheticIncident(
        host, works, slo_for(service), service, kernel=messages, server=server, subjects=(f"gpu/{faulty}",)
    )


def gpu_lost(fault: FaultParameters) -> SyntheticIncident:
    """A GPU that becomes unreachable: before the observation, or during it if mild."""
    rng = fault.rng
    host = random_machine(rng, SERVED, at_least=2)
    after = 0.0 if fault.severity > 0.6 else rng.uniform(2.0, 7.0)
    faulty, works = _one_faulty(fault, host, lambda work: replace(work, lost_after=after))
    pci = host.pci(faulty)
    time = fault.earlier(40, 300) if after == 0.0 else round(fault.now + after - 0.2, 6)
    if rng.random() < 0.6:
        recovery = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
        messages = [
            (time, logs.xid(pci, 79, "GPU has fallen off the bus.")),
            (time + 0.000_02, f"NVRM: GPU {pci}.0: GPU has fallen off the bus."),
            (time + 0.000_7, logs.xid(pci, 154, recovery)),
        ]
    else:  # newer drivers write no Xid number
        device = f"10de:{rng.choice(('2330', '20b2', '2236', '1eb8'))}"
        messages = [
            (time, f"NVRM: The NVIDIA GPU {pci}.0"),
            (time + 0.000_01, f"NVRM: (PCI ID: {device}) installed in this system has"),
            (time + 0.000_02, "NVRM: fallen off the bus and is not responding to commands."),
        ]
    server = [
        (time + 0.4, "ERROR", "worker: CUDA error: unspecified launch failure"),
        (time + 1.1, "ERROR", f"supervisor: worker on device {faulty} is gone, {host.count - 1} of {host.count} left"),
    ]
    left = (1.0,) * (host.count - 1)
    load = rng.uniform(0.55, 0.7)
    failures = fault.between(0.005, 0.04)
    service = triton_service(fault, left, load, failures=failures, healthy_instances=host.count)
    return SyntheticIncident(
        host, works, slo_for(service), service, kernel=messages, server=server, subjects=(f"gpu/{faulty}",)
    )


def memory_exhausted(fault: FaultParameters) -> SyntheticIncident:
    """Batches that exceed the GPU memory: allocations and requests fail."""
    rng = fault.rng
    host = random_machine(rng, SERVED)
    works = tuple(replace(work, memory=rng.uniform(0.975, 0.998)) for work in usual(fault, host))
    free, total = rng.randint(20, 180), host.board.memory / 1024
    server = []
    for _ in range(round(fault.between(3, 40))):
        mib = rng.choice((64, 128, 256, 512, 1024))
        message = (
            f"worker: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {mib}.00 MiB. GPU 0 has a total "
            f"capacity of {total:.2f} GiB of which {free}.{rng.randint(10, 99)} MiB is free."
        )
        server.append((fault.earlier(1, 400), "ERROR", message))
    failures = fault.between(0.01, 0.15)
    service = triton_service(
        fault, (fault.between(1.05, 1.4),) * host.count, rng.uniform(0.55, 0.62), failures=failures
    )
    subjects = tuple(f"gpu/{index}" for index in range(host.count))
    return SyntheticIncident(host, works, slo_for(service), service, server=server, subjects=subjects)


def shared_gpu(fault: FaultParameters) -> SyntheticIncident:
    """A foreign process on one of the server's GPUs."""
    rng = fault.rng
    host = random_machine(rng, SERVED, watched=True)
    used = host.board.memory * MIB
    taken = fault.between(0.1, 0.3)
    pids = [host.pid + rng.randint(900, 30_000) for _ in range(1 if fault.severity < 0.7 else 2)]
    each = float(round(used * taken / len(pids) / MIB) * MIB)
    faulty, works = _one_faulty(
        fault,
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
    service = triton_service(fault, _slower_at(host, faulty, fault.between(1.4, 2.8)), rng.uniform(0.6, 0.72))
    return SyntheticIncident(host, works, slo_for(service), service, subjects=(f"gpu/{faulty}",))


def degraded_pcie(fault: FaultParameters) -> SyntheticIncident:
    """A PCIe link with fewer lanes or a lower generation, and replayed packets."""
    rng = fault.rng
    host = random_machine(rng, SERVED)
    best = host.board.generation
    narrow = rng.random() < 0.65
    width = (8 if fault.severity < 0.7 else 4) if narrow else 16
    generation = best if narrow else max(1, best - (1 if fault.severity < 0.7 else 2))
    replays = fault.between(0.9, 6.0)
    faulty, works = _one_faulty(
        fault, host, lambda work: replace(work, width=width, generation=generation, replays=replays)
    )
    device = f"{host.pci(faulty)}.0"
    messages = []
    for _ in range(round(fault.between(2, 9))):
        time = fault.earlier(5, 3_000)
        bus_error = "PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)"
        messages += [
            (time, f"pcieport {host.pci(faulty)[:8]}00.0: AER: Corrected error message received from {device}"),
            (time + 0.000_01, f"nvidia {device}: {bus_error}"),
            (time + 0.000_02, f"nvidia {device}:    [12] Timeout"),
        ]
    slower = 16 / width * 2 ** (best - generation)
    service = triton_service(
        fault, (1.0,) * host.count, rng.uniform(0.6, 0.68), copying=rng.uniform(0.03, 0.06), slower_copies=slower
    )
    return SyntheticIncident(host, works, slo_for(service), service, kernel=messages, subjects=(f"gpu/{faulty}",))


def nvlink_errors(fault: FaultParameters) -> SyntheticIncident:
    """An NVLink with replays, counted at both ends; collective operations are slower."""
    rng = fault.rng
    host = random_machine(rng, LINKED)
    works = usual(fault, host)
    ends = sorted(rng.sample(range(host.count), 2))
    links = rng.sample(range(host.board.links), 1 if fault.severity < 0.6 else 2)
    rate = fault.between(0.35, 45)
    for end in ends:
        errors = {link: rate * rng.uniform(0.8, 1.2) for link in links}
        works[end] = replace(works[end], link_errors=errors)
    messages = []
    if fault.severity > 0.6:
        registers = ", ".join([f"0x{1 << rng.randint(4, 16):x}", *["0x0"] * 6])
        detail = f"NVLink: fatal error detected on link {links[0]}({registers})"
        time = fault.earlier(20, 400)
        messages = [(time, logs.xid(host.pci(ends[0]), 74, detail))]
    service = triton_service(fault, (fault.between(1.15, 2.0),) * host.count, rng.uniform(0.5, 0.6))
    return SyntheticIncident(
        host, tuple(works), slo_for(service), service, kernel=messages, subjects=tuple(f"gpu/{end}" for end in ends)
    )
