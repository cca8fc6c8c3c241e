"""What the samples of one GPU amount to: one value per signal, or why there is none. Pure.

Over the samples with a value: utilisation, clock and power are means, memory and temperature the
highest, the margin to the slowdown temperature the lowest, PCIe lanes the median, states and totals the last one;
counters are differences over the time between the first and the last sample.

NVML's documentation describes the clocks-event reasons (nvmlClocksEventReasons). Two readings need care:
* The software power cap bit is set on some idle boards. It counts in samples under load only.
* The PCIe generation is lowered on an idle link. Under load it is compared with its maximum; while idle it is unknown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latdoctor.collectors.nvml.samples import GpuDevice, GpuSample, Number, NvLink, NvmlRecord, Unavailable
from latdoctor.evidence.model import Value
from latdoctor.gap_code import GapCode

# Below this utilisation a GPU is taken for idle: its clocks and its link may be powered down.
IDLE_UTILIZATION = 0.10
IDLE_STATE = 8  # performance states P8 and slower are idle states; P15 is the slowest, 32 stands for unknown
_SLOWEST_STATE = 15

# Bits of nvmlClocksEventReasons.
IDLE, SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80

# NVML lists no process of another PID namespace. With more memory in use than a driver takes itself, none is no answer.
_DRIVER_MEMORY = 1 << 30


# Why a value is missing although NVML did answer.
class NotDerived(Unavailable, frozen=True):
    """NVML did answer, but its values do not yield the signal: `error` says why, `gap` is the reason code."""

    gap: GapCode = GapCode.UNSPECIFIED


def _not_derived(why: str, gap: GapCode) -> NotDerived:
    return NotDerived(why, None, gap)


OUT_OF_RANGE = _not_derived("the reported value is out of range", GapCode.INCONSISTENT)
ZERO_MAXIMUM = _not_derived("its maximum is reported as 0", GapCode.INCONSISTENT)
ONE_SAMPLE = _not_derived("a rate needs two samples", GapCode.INSUFFICIENT)
DECREASED = _not_derived(
    "the counter decreased in the window (driver reload, reset or roll-over)", GapCode.INCONSISTENT
)
IDLE_LINK = _not_derived("idle: the link is powered down", GapCode.EMPTY)
LOAD_UNKNOWN = _not_derived(
    "the link is below its maximum, and whether the GPU is idle is not reported", GapCode.AMBIGUOUS
)
NO_LINK = _not_derived("no NVLink is up", GapCode.EMPTY)
LINK_CHANGED = _not_derived("an NVLink came up or went down in the window", GapCode.INCONSISTENT)
HIDDEN = _not_derived(
    "NVML lists no process although the GPU is in use (they run in another PID namespace)", GapCode.PERMISSION
)
NOT_AMONG = _not_derived(
    "the watched process is not among those that NVML lists (in a container its number is another)", GapCode.NOT_MATCHED
)

SignalValue = tuple[Value | Unavailable, str]  # what goes into a reading, and its note


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _last(values: Sequence[float]) -> float:
    return values[-1]


def _median(values: Sequence[float]) -> float:
    return statistics.median_low(values)


def _over(part: Number, whole: Number) -> Number:
    if isinstance(part, Unavailable) or isinstance(whole, Unavailable):
        return part if isinstance(part, Unavailable) else whole
    return part / whole if whole > 0 else ZERO_MAXIMUM


def _margin(device: GpuDevice, sample: GpuSample) -> Number:
    """The driver's own margin if it reports one (Hopper and newer have no fixed slowdown temperature)."""
    if not isinstance(sample.temperature_margin, Unavailable):
        return sample.temperature_margin
    limit, now = device.temperature_slowdown, sample.temperature
    if isinstance(limit, Unavailable) or isinstance(now, Unavailable):
        return limit if isinstance(limit, Unavailable) else now
    return limit - now if limit > 0 else ZERO_MAXIMUM


def _bit(bits: int) -> Callable[[GpuDevice, GpuSample], Number]:
    def read(_: GpuDevice, sample: GpuSample) -> Number:
        reasons = sample.clock_reasons
        return reasons if isinstance(reasons, Unavailable) else float(bool(reasons & bits))

    return read


def _power_cap(_: GpuDevice, sample: GpuSample) -> Number:
    reasons = sample.clock_reasons
    if isinstance(reasons, Unavailable):
        return reasons
    return float(bool(reasons & SW_POWER_CAP) and not (reasons & IDLE or _is_idle(sample)))


@dataclass(frozen=True, slots=True)
class GpuQuantity:
    """One signal: its value in a sample, and what stands for all samples."""

    signal: str
    read: Callable[[GpuDevice, GpuSample], Number]
    reduce: Callable[[Sequence[float]], float]
    how: str


MEANS = ("mean", "share", "share under load")  # of `GpuQuantity.how`: what an end of the samples can differ from
QUANTITIES = (
    GpuQuantity("gpu.utilization", lambda _, s: s.utilization, _mean, "mean"),
    GpuQuantity("gpu.memory_used", lambda _, s: s.memory_used, max, "highest"),
    GpuQuantity("gpu.memory_total", lambda _, s: s.memory_total, _last, "last"),
    GpuQuantity("gpu.memory_used_ratio", lambda _, s: _over(s.memory_used, s.memory_total), max, "highest"),
    GpuQuantity("gpu.sm_clock", lambda _, s: s.sm_clock, _mean, "mean"),
    GpuQuantity("gpu.sm_clock_max", lambda d, _: d.sm_clock_max, _last, "last"),
    GpuQuantity("gpu.sm_clock_ratio", lambda d, s: _over(s.sm_clock, d.sm_clock_max), _mean, "mean"),
    GpuQuantity("gpu.temperature", lambda _, s: s.temperature, max, "highest"),
    GpuQuantity("gpu.temperature_slowdown", lambda d, _: d.temperature_slowdown, _last, "last"),
    GpuQuantity("gpu.temperature_margin", _margin, min, "lowest"),
    GpuQuantity("gpu.power", lambda _, s: s.power, _mean, "mean"),
    GpuQuantity("gpu.power_limit", lambda _, s: s.power_limit, _last, "last"),
    GpuQuantity("gpu.power_ratio", lambda _, s: _over(s.power, s.power_limit), _mean, "mean"),
    GpuQuantity("gpu.throttle.idle", _bit(IDLE), _mean, "share"),
    GpuQuantity("gpu.throttle.sw_power_cap", _power_cap, _mean, "share under load"),
    GpuQuantity("gpu.throttle.hw_slowdown", _bit(HW_SLOWDOWN), _mean, "share"),
    GpuQuantity("gpu.throttle.sw_thermal", _bit(SW_THERMAL), _mean, "share"),
    GpuQuantity("gpu.throttle.hw_thermal", _bit(HW_THERMAL), _mean, "share"),
    GpuQuantity("gpu.throttle.hw_power_brake", _bit(HW_POWER_BRAKE), _mean, "share"),
    GpuQuantity("gpu.throttle.thermal", _bit(SW_THERMAL | HW_THERMAL), _mean, "share"),
    GpuQuantity("gpu.ecc.uncorrectable", lambda _, s: s.ecc_uncorrectable, _last, "last"),
    GpuQuantity("gpu.row_remap.pending", lambda _, s: s.row_remap_pending, _last, "last"),
    GpuQuantity("gpu.row_remap.failed", lambda _, s: s.row_remap_failed, _last, "last"),
    GpuQuantity("gpu.pcie.width", lambda _, s: s.pcie_width, _median, "median"),
    GpuQuantity("gpu.pcie.width_ratio", lambda d, s: _over(s.pcie_width, d.pcie_width_max), _median, "median"),
    GpuQuantity("gpu.pcie.generation", lambda _, s: s.pcie_generation, max, "highest"),
)


def signal_values(record: NvmlRecord, device: GpuDevice, samples: Sequence[GpuSample]) -> dict[str, SignalValue]:
    """Every signal of one GPU over `samples`, of which there is at least one."""
    return {
        **{quantity.signal: _reduced(quantity, device, samples) for quantity in QUANTITIES},
        "gpu.pcie.generation_ratio": _generation_ratio(device, samples),
        "gpu.ecc.uncorrectable_rate": _rate(samples, lambda sample: sample.ecc_uncorrectable),
        "gpu.pcie.replay_rate": _rate(samples, lambda sample: sample.pcie_replays),
        "gpu.nvlink.error_rate": _link_error_rate(samples),
        **_processes(record, samples),
    }


def _known(values: Sequence[Number]) -> list[float]:
    return [value for value in values if not isinstance(value, Unavailable)]


def _reduced(quantity: GpuQuantity, device: GpuDevice, samples: Sequence[GpuSample]) -> SignalValue:
    values = [quantity.read(device, sample) for sample in samples]
    known = _known(values)
    if not known:
        return values[0], ""
    silent = f", {len(values) - len(known)} more without a value" if len(known) < len(values) else ""
    return quantity.reduce(known), f"{quantity.how} of {len(known)} samples{silent}"


def _rate(samples: Sequence[GpuSample], read: Callable[[GpuSample], Number]) -> SignalValue:
    """Per second, between the first and the last sample with the counter."""
    values = [(sample.time, read(sample)) for sample in samples]
    known = [(time, value) for time, value in values if not isinstance(value, Unavailable)]
    if not known:
        return values[0][1], ""
    (start, first), (end, last) = known[0], known[-1]
    if end <= start:
        return ONE_SAMPLE, ""
    if any(after < before for (_, before), (_, after) in pairwise(known)):
        return DECREASED, ""
    return (last - first) / (end - start), f"{last - first:.0f} in {end - start:.1f} s"


def _link_error_rate(samples: Sequence[GpuSample]) -> SignalValue:
    """All error counters of all links that are up, per second. Links are asked in the first and the last sample."""
    asked = [(sample.time, sample.links) for sample in samples if sample.links is not None]
    known = [(time, links) for time, links in asked if not isinstance(links, Unavailable)]
    if not known:
        refusals = [links for _, links in asked if isinstance(links, Unavailable)]
        return (refusals[0] if refusals else ONE_SAMPLE), ""
    (start, first), (end, last) = known[0], known[-1]
    if end <= start:
        return ONE_SAMPLE, ""
    if [link.link for link in first] != [link.link for link in last]:
        return LINK_CHANGED, ""
    if not first:
        return NO_LINK, ""
    before, after = _counters(first), _counters(last)
    shared = before.keys() & after.keys()
    if not shared:
        errors = [value for link in (*first, *last) for value in link.errors if isinstance(value, Unavailable)]
        return next(iter(errors), LINK_CHANGED), ""
    if any(after[key] < before[key] for key in shared):
        return DECREASED, ""
    count = sum(after[key] - before[key] for key in shared)
    return count / (end - start), f"{count:.0f} in {end - start:.1f} s over {len(first)} links"


def _counters(links: Sequence[NvLink]) -> dict[tuple[int, int], float]:
    return {
        (link.link, place): value
        for link in links
        for place, value in enumerate(link.errors)
        if not isinstance(value, Unavailable)
    }


def _is_idle(sample: GpuSample) -> bool:
    """Where the driver says so by utilisation or performance state."""
    busy, state = sample.utilization, sample.performance_state
    low = not isinstance(busy, Unavailable) and busy < IDLE_UTILIZATION
    slow = not isinstance(state, Unavailable) and IDLE_STATE <= state <= _SLOWEST_STATE
    return low or slow


def _generation_ratio(device: GpuDevice, samples: Sequence[GpuSample]) -> SignalValue:
    """The highest generation of the window over the maximum, if the GPU worked: a link takes a moment to wake up."""
    ratios: list[Number] = [_over(sample.pcie_generation, device.pcie_generation_max) for sample in samples]
    known = _known(ratios)
    if not known:
        return ratios[0], ""
    highest = max(known)
    busy = _known([sample.utilization for sample in samples])
    if highest < 1 and (all(map(_is_idle, samples)) or (busy and _mean(busy) < IDLE_UTILIZATION)):
        return IDLE_LINK, ""
    if highest < 1 and not busy:
        return LOAD_UNKNOWN, ""
    return highest, f"highest of {len(known)} samples"


def _processes(record: NvmlRecord, samples: Sequence[GpuSample]) -> Mapping[str, SignalValue]:
    """Processes on the GPU, and those of them that do not belong to the watched one (where one is watched).

    A GPU that the watched process does not use has no foreign processes to speak of: nothing is said of it.
    """
    lists = [sample.processes for sample in samples if not isinstance(sample.processes, Unavailable)]
    if not lists:
        refused = next(sample.processes for sample in samples if isinstance(sample.processes, Unavailable))
        return dict.fromkeys(_process_signals(record), (refused, ""))
    listed = {process.pid for process in lists[-1]}
    if not listed and _in_use(samples):
        return dict.fromkeys(_process_signals(record), (HIDDEN, ""))
    known: dict[str, SignalValue] = {"gpu.processes": (float(len(listed)), "")}
    own = listed & set(record.own)
    if record.pid is not None and (own or not listed):
        known["gpu.foreign_processes"] = float(len(listed - own)), ""
    elif record.pid is not None and not record.own:
        known["gpu.foreign_processes"] = NOT_AMONG, ""
    return known


def _process_signals(record: NvmlRecord) -> tuple[str, ...]:
    return ("gpu.processes",) if record.pid is None else ("gpu.processes", "gpu.foreign_processes")


def _in_use(samples: Sequence[GpuSample]) -> bool:
    used = _known([sample.memory_used for sample in samples])
    busy = _known([sample.utilization for sample in samples])
    return bool(used and used[-1] > _DRIVER_MEMORY) or bool(busy and _mean(busy) >= IDLE_UTILIZATION)
