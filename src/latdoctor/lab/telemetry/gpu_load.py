"""GPU activity over the observation, sampled as NVML reports it, with noise and drift."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.lab.telemetry.nvml import (
    GIB,
    LOST,
    MHZ,
    MIB,
    NOT_FOUND,
    NOT_SUPPORTED,
    SCHEMA_VERSION,
    GpuProcess,
    Number,
    NvLinkCounters,
    NvmlDevice,
    NvmlRecord,
    NvmlSample,
)


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model of GPU. Clocks in MHz, power in W, temperatures in °C, memory in MiB.

    `slowdown` is where the hardware cuts the clocks and `target` where the driver begins to. Newer boards
    (`reports_margin`) report only the margin to the first. Idle `light` boards fall to P8 and PCIe generation 1.
    """

    name: str
    memory: int
    clock_max: int
    clock_idle: int
    power_limit: float
    power_idle: float
    slowdown: float
    target: float
    generation: int
    counts: tuple[int, ...]  # possible numbers of them in one machine
    links: int = 0  # NVLinks
    reports_margin: bool = False
    remaps_rows: bool = True
    light: bool = False
    idle_reasons: int = 0x1
    has_mig: bool = False
    has_ecc: bool = True


# Name, MiB, MHz (maximum, idle), W (limit, idle), °C (slowdown, target), PCIe generation, GPUs in one machine, NVLinks.
H100 = GpuModel(
    *("NVIDIA H100 80GB HBM3", 81559, 1980, 345, 700, 70, 89, 87, 5, (4, 8)),
    links=18,
    reports_margin=True,
    has_mig=True,
)
A100 = GpuModel(*("NVIDIA A100-SXM4-80GB", 81920, 1410, 210, 400, 62, 89, 85, 4, (4, 8), 12), has_mig=True)
A10 = GpuModel(*("NVIDIA A10", 23028, 1695, 210, 150, 21, 95, 88, 4, (1, 2, 4)), light=True)
T4 = GpuModel(*("Tesla T4", 15360, 1590, 300, 70, 10, 93, 85, 3, (1, 2, 4)), remaps_rows=False, light=True)
# A workstation card: its power cap bit stays on while it idles.
RTX4080 = GpuModel(
    *("NVIDIA GeForce RTX 4080 SUPER", 16376, 3105, 210, 320, 13, 90, 83, 4, (1, 2)),
    reports_margin=True,
    remaps_rows=False,
    light=True,
    idle_reasons=0x5,
    has_ecc=False,
)

SERVED = (H100, A100, A10, T4)
LINKED = (H100, A100)


# Bits of nvmlClocksEventReasons.
SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80

INTERVAL = 0.5  # seconds between samples
_CLOCK_STEP = 15  # MHz: clocks move in steps of so much
_BUSES = (0x1B, 0x3B, 0x43, 0x52, 0x9B, 0xBB, 0xCB, 0xDB)
# Driver and the highest CUDA version that it supports; whether NVML reports the margin to the slowdown temperature.
DRIVERS = (("535.183.06", "12.2", False), ("570.172.08", "12.8", True), ("580.95.05", "13.0", True))


@dataclass(frozen=True, slots=True)
class GpuWork:
    """The activity of one GPU. Pairs are values at the start and at the end of the window, interpolated.

    `clock`, `power` and `memory` are shares of their maximum; `reasons` are bits with the share of samples that show
    them; `temperature` counts from the board's slowdown temperature (so it is below 0).
    """

    utilization: tuple[float, float] = (0.58, 0.62)
    memory: float = 0.78
    clock: tuple[float, float] = (1.0, 1.0)
    power: tuple[float, float] = (0.62, 0.64)
    power_limit: float | None = None  # W, where it is not the board's own
    temperature: tuple[float, float] = (-28.0, -27.0)
    reasons: tuple[tuple[int, float], ...] = ()
    width: int = 16
    generation: int | None = None  # where it is not the board's own
    replays: float = 0.0  # per second
    link_errors: Mapping[int, float] = field(default_factory=dict)  # NVLink → errors per second
    uncorrectable: int = 0
    remap: tuple[bool, bool] = (False, False)  # pending, failed
    lost_after: float | None = None  # seconds into the window
    neighbours: tuple[tuple[int, float], ...] = ()  # foreign processes: pid and its memory in bytes


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """A machine with GPUs of one model, and the server's process on them."""

    board: GpuModel
    count: int
    driver: str
    cuda: str
    reports_margin: bool
    pid: int
    identity: int  # seeds the serial numbers
    watched: bool = False  # whether the server's process was observed (--pid)

    def pci(self, index: int) -> str:
        """As the kernel's log writes it: 0000:9b:00."""
        return f"0000:{_BUSES[index]:02x}:00"

    def uuid(self, index: int) -> str:
        number = (self.identity * 8 + index) * 0x9E3779B97F4A7C15 % (1 << 96)
        text = f"{number:024x}"
        return f"GPU-{text[:8]}-{text[8:12]}-4{text[12:15]}-a{text[15:18]}-{text[18:]}{index:06x}"


def random_machine(
    rng: random.Random, boards: Sequence[GpuModel], *, at_least: int = 1, watched: bool = False
) -> GpuMachine:
    board = rng.choice(boards)
    count = rng.choice([count for count in board.counts if count >= at_least])
    driver, cuda, margin = rng.choice(DRIVERS)
    return GpuMachine(board, count, driver, cuda, margin, rng.randint(2_100, 64_000), rng.getrandbits(40), watched)


def record(rng: random.Random, host: GpuMachine, works: Sequence[GpuWork], start: float, seconds: float) -> NvmlRecord:
    """`works` of the machine's GPUs, one each, over the window."""
    steps = round(seconds / INTERVAL)
    history = [rng.randint(0, 3) for _ in works]  # PCIe replays since the driver was loaded
    samples = []
    for step in range(steps + 1):
        at = step / steps
        for index, work in enumerate(works):
            samples.append(_sample(rng, host, index, work, start, seconds, at, history[index]))
    return NvmlRecord(
        schema_version=SCHEMA_VERSION,
        driver=host.driver,
        cuda=host.cuda,
        pid=host.pid if host.watched else None,
        own=(host.pid,) if host.watched else (),
        devices=tuple(_device(host, index) for index in range(len(works))),
        samples=tuple(samples),
    )


def _device(host: GpuMachine, index: int) -> NvmlDevice:
    board = host.board
    return NvmlDevice(
        index=index,
        name=board.name,
        uuid=host.uuid(index),
        pci=host.pci(index),
        sm_clock_max=board.clock_max * MHZ,
        temperature_slowdown=NOT_SUPPORTED if _margin_only(host) else board.slowdown,
        pcie_width_max=16.0,
        pcie_generation_max=float(board.generation),
        mig=0 if board.has_mig else NOT_SUPPORTED,
    )


def _margin_only(host: GpuMachine) -> bool:
    return host.board.reports_margin and host.reports_margin


def _sample(
    rng: random.Random,
    host: GpuMachine,
    index: int,
    work: GpuWork,
    start: float,
    seconds: float,
    at: float,
    history: int,
) -> NvmlSample:
    time = round(start + at * seconds, 6)
    if work.lost_after is not None and at * seconds >= work.lost_after:
        return NvmlSample(time, index, *[LOST] * 17)
    board, idle = host.board, max(work.utilization) < 0.05
    busy = min(1.0, max(0.0, rng.gauss(_between(work.utilization, at), 0.004 if idle else 0.025)))
    temperature = round(board.slowdown + _between(work.temperature, at) + rng.gauss(0, 0.4))
    limit = work.power_limit or board.power_limit
    power = board.power_idle * rng.uniform(0.97, 1.04) if idle else limit * _noisy(rng, work.power, at, 0.012)
    sleeping = idle and board.light
    pending, failed = map(float, work.remap)
    return NvmlSample(
        time=time,
        index=index,
        utilization=round(busy, 2),
        performance_state=8.0 if sleeping else 0.0,
        memory_used=float(round(board.memory * work.memory) * MIB),
        memory_total=float(board.memory * MIB),
        sm_clock=_clock(rng, board, work, at, idle=idle),
        temperature=float(temperature),
        temperature_margin=_margin(host, temperature),
        power=round(power, 3),
        power_limit=float(limit),
        clock_reasons=board.idle_reasons if idle else _reasons(rng, work),
        ecc_uncorrectable=float(work.uncorrectable) if board.has_ecc else NOT_SUPPORTED,
        row_remap_pending=pending if board.remaps_rows else NOT_SUPPORTED,
        row_remap_failed=failed if board.remaps_rows else NOT_SUPPORTED,
        pcie_width=float(work.width),
        pcie_generation=1.0 if sleeping else float(work.generation or board.generation),
        pcie_replays=float(history + int(work.replays * at * seconds)),
        processes=_processes(host, work),
        links=_links(host, work, at * seconds, history) if at in (0.0, 1.0) else None,
    )


def _between(pair: tuple[float, float], at: float) -> float:
    return pair[0] + (pair[1] - pair[0]) * at


def _noisy(rng: random.Random, pair: tuple[float, float], at: float, spread: float) -> float:
    return min(1.0, max(0.02, rng.gauss(_between(pair, at), spread)))


def _clock(rng: random.Random, board: GpuModel, work: GpuWork, at: float, *, idle: bool) -> Number:
    if idle:
        return board.clock_idle * MHZ
    share = _between(work.clock, at)
    clock = board.clock_max * (share if share >= 1 else rng.gauss(share, 0.02))
    return min(board.clock_max, max(board.clock_idle, round(clock / _CLOCK_STEP) * _CLOCK_STEP)) * MHZ


def _margin(host: GpuMachine, temperature: int) -> Number:
    if not host.reports_margin:
        return NOT_FOUND
    return float(host.board.slowdown - temperature) if host.board.reports_margin else NOT_SUPPORTED


def _reasons(rng: random.Random, work: GpuWork) -> int:
    shown = 0
    for bits, share in work.reasons:
        shown |= bits if rng.random() < share else 0
    return shown


def _processes(host: GpuMachine, work: GpuWork) -> tuple[GpuProcess, ...]:
    """The processes; the server has the used memory that its neighbours and the driver do not have."""
    foreign = tuple(GpuProcess(pid, memory) for pid, memory in work.neighbours)
    own = host.board.memory * work.memory * MIB - sum(memory for _, memory in work.neighbours) - 0.5 * GIB
    return (GpuProcess(host.pid, float(int(own) >> 20 << 20)), *foreign) if own > 0 else foreign


def _links(host: GpuMachine, work: GpuWork, after: float, history: int) -> tuple[NvLinkCounters, ...]:
    """Counters since the driver was loaded: a few corrected errors of long ago are on every machine."""
    found = []
    for link in range(host.board.links):
        errors = int(work.link_errors.get(link, 0.0) * after)
        replays = errors * 3 // 5
        old = history if link == 2 else 0
        found.append(NvLinkCounters(link, (float(replays), float(errors > 400), float(old + errors - replays), 0.0)))
    return tuple(found)
