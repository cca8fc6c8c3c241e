"""The fields of a GPU by the names of `nvidia-smi --help-query-gpu`, and how they become a sample.

Every other output of nvidia-smi is brought to these names first. Older names of a field are aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from latdoctor.collectors.documents.nvidia_smi.values import MIB, MISSING, flag, number, refusal, word
from latdoctor.collectors.nvml import readings
from latdoctor.collectors.nvml.samples import GpuDevice, GpuProcess, GpuSample, Number, Unavailable
from latdoctor.evidence.subject_branch import pci_of

Fields = Mapping[str, str]

_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "power.draw.instant": "power.draw",
    "power.draw.average": "power.draw",
}


def canonical(name: str) -> str:
    """The name under which a field is read: `clocks_throttle_reasons.active` → `clocks_event_reasons.active`."""
    name = name.strip().lower().replace("clocks_throttle_reasons.", "clocks_event_reasons.")
    return _ALIASES.get(name, name)


# The clock reasons by their fields.
REASONS = {
    "gpu_idle": readings.IDLE,
    "sw_power_cap": readings.SW_POWER_CAP,
    "hw_slowdown": readings.HW_SLOWDOWN,
    "sw_thermal_slowdown": readings.SW_THERMAL,
    "hw_thermal_slowdown": readings.HW_THERMAL,
    "hw_power_brake_slowdown": readings.HW_POWER_BRAKE,
}
_REASON = "clocks_event_reasons."
_OTHER_REASONS = {"gpu.throttle.applications": 0x2, "gpu.throttle.sync_boost": 0x10}
_RECOVERY = {"none": 0, "reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3, "drain and reset": 4}


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU at one moment as a text shows it. `time` is unix seconds UTC; None where the text has none."""

    index: int
    fields: Fields
    time: float | None = None
    processes: tuple[GpuProcess, ...] | Unavailable = MISSING


def device_of(index: int, fields: Fields) -> GpuDevice:
    """What does not change while a GPU is watched."""
    mig = flag(fields.get("mig.mode.current"))
    bus = word(fields.get("pci.bus_id"))
    pci = bus if isinstance(bus, Unavailable) else pci_of(bus) or MISSING
    return GpuDevice(
        index=index,
        name=word(fields.get("name")),
        uuid=word(fields.get("uuid")),
        pci=pci,
        sm_clock_max=number(fields.get("clocks.max.sm"), 1e6),
        temperature_slowdown=number(fields.get("temperature.gpu.slowdown")),
        pcie_width_max=number(fields.get("pcie.link.width.max")),
        pcie_generation_max=_first(fields, "pcie.link.gen.max", "pcie.link.gen.gpumax"),
        mig=mig if isinstance(mig, Unavailable) else int(mig),
    )


def sample_of(state: GpuState, time: float) -> GpuSample:
    """The sample that NVML would have given; what the text lacks is unavailable, never zero."""
    fields = state.fields
    used, total = number(fields.get("memory.used"), MIB), number(fields.get("memory.total"), MIB)
    return GpuSample(
        time=time,
        index=state.index,
        utilization=number(fields.get("utilization.gpu"), 0.01),
        performance_state=performance_state(fields.get("pstate")),
        memory_used=used,
        memory_total=total,
        sm_clock=number(fields.get("clocks.current.sm"), 1e6),
        temperature=number(fields.get("temperature.gpu")),
        temperature_margin=_margin(fields),
        power=number(fields.get("power.draw")),
        power_limit=_first(fields, "enforced.power.limit", "power.limit"),
        clock_reasons=_clock_reasons(fields),
        ecc_uncorrectable=number(fields.get("ecc.errors.uncorrected.volatile.total")),
        row_remap_pending=_flag_or_number(fields.get("remapped_rows.pending")),
        row_remap_failed=_flag_or_number(fields.get("remapped_rows.failure")),
        pcie_width=number(fields.get("pcie.link.width.current")),
        pcie_generation=number(fields.get("pcie.link.gen.current")),
        pcie_replays=number(fields.get("pcie.replays")),
        processes=state.processes,
        links=None,
    )


def performance_state(text: str | None) -> Number:
    """0 to 15 of `P0` to `P15`."""
    why = refusal(text)
    if why is not None or text is None:
        return why or MISSING
    return number(text.strip().removeprefix("P"))


def _first(fields: Fields, *names: str) -> Number:
    values = [number(fields.get(name)) for name in names]
    return next((value for value in values if not isinstance(value, Unavailable)), values[0])


def _margin(fields: Fields) -> Number:
    """The driver's T.Limit is the distance to the slowdown threshold, which is given as T.Limit too."""
    now, slowdown = (number(fields.get(f"temperature.gpu.tlimit{which}")) for which in ("", ".slowdown"))
    if isinstance(now, Unavailable) or isinstance(slowdown, Unavailable):
        return now
    return now - slowdown


def _known_reasons(fields: Fields) -> tuple[int, int]:
    """The bits of clock reasons that are set, and those that are known at all."""
    text = fields.get(f"{_REASON}active", "").strip()
    if text.lower().startswith("0x"):
        try:
            return int(text, 16), -1
        except ValueError:
            return 0, 0
    active = known = 0
    for name, bit in REASONS.items():
        state = flag(fields.get(_REASON + name))
        if not isinstance(state, Unavailable):
            known |= bit
            active |= bit if state else 0
    return active, known


def _clock_reasons(fields: Fields) -> int | Unavailable:
    """All of them, or none: a reason that was not asked for is not known to be inactive."""
    active, known = _known_reasons(fields)
    every = sum(REASONS.values())
    if known & every == every:
        return active
    return refusal(fields.get(f"{_REASON}active")) or MISSING


def _flag_or_number(text: str | None) -> Number:
    state = flag(text)
    return state if not isinstance(state, Unavailable) else number(text)


def _bit(bit: int) -> Callable[[Fields], Number]:
    def read(fields: Fields) -> Number:
        active, known = _known_reasons(fields)
        return float(bool(active & bit)) if known & bit else MISSING

    return read


def _partial_thermal(fields: Fields) -> Number:
    """Whether heat cuts the clocks: known if one of its two reasons is active, or both are known not to be."""
    active, known = _known_reasons(fields)
    bits = readings.SW_THERMAL | readings.HW_THERMAL
    if active & bits:
        return 1.0
    return 0.0 if known & bits == bits else _flag_or_number(fields.get("violation.thermal"))


def _power_cap_under_load(fields: Fields) -> Number:
    """The software power cap; on an idle board it is set too and cuts nothing."""
    active, known = _known_reasons(fields)
    if not known & readings.SW_POWER_CAP:
        return MISSING
    busy, state = number(fields.get("utilization.gpu"), 0.01), performance_state(fields.get("pstate"))
    idle = active & readings.IDLE or (not isinstance(busy, Unavailable) and busy < readings.IDLE_UTILIZATION)
    idle = idle or (not isinstance(state, Unavailable) and state >= readings.IDLE_STATE)
    return float(bool(active & readings.SW_POWER_CAP) and not idle)


def _of(name: str, factor: float = 1.0) -> Callable[[Fields], Number]:
    return lambda fields: number(fields.get(name), factor)


def _pages_pending(fields: Fields) -> Number:
    """`No` is none; `Yes` is at least one."""
    return _flag_or_number(fields.get("retired_pages.pending"))


def _recovery(fields: Fields) -> Number:
    text = fields.get("gpu_recovery_action", "").strip().lower()
    return float(_RECOVERY[text]) if text in _RECOVERY else refusal(text) or MISSING


# Signals beyond those of an NVML sample: how each is read, and what stands for several samples.
FURTHER: Mapping[str, Callable[[Fields], Number]] = {
    "gpu.memory_utilization": _of("utilization.memory", 0.01),
    "gpu.encoder_utilization": _of("utilization.encoder", 0.01),
    "gpu.decoder_utilization": _of("utilization.decoder", 0.01),
    "gpu.memory_free": _of("memory.free", MIB),
    "gpu.memory_reserved": _of("memory.reserved", MIB),
    "gpu.clock.graphics": _of("clocks.current.graphics", 1e6),
    "gpu.clock.memory": _of("clocks.current.memory", 1e6),
    "gpu.clock.video": _of("clocks.current.video", 1e6),
    "gpu.clock.memory_max": _of("clocks.max.memory", 1e6),
    "gpu.memory_temperature": _of("temperature.memory"),
    "gpu.memory_temperature_max": _of("temperature.memory.max"),
    "gpu.pcie.width_max": _of("pcie.link.width.max"),
    "gpu.pcie.generation_max": lambda fields: _first(fields, "pcie.link.gen.max", "pcie.link.gen.gpumax"),
    "gpu.power_limit_default": _of("power.default_limit"),
    "gpu.pstate": lambda fields: performance_state(fields.get("pstate")),
    "gpu.fan": _of("fan.speed", 0.01),
    "gpu.ecc.corrected": _of("ecc.errors.corrected.volatile.total"),
    "gpu.ecc.corrected_lifetime": _of("ecc.errors.corrected.aggregate.total"),
    "gpu.ecc.uncorrectable_lifetime": _of("ecc.errors.uncorrected.aggregate.total"),
    "gpu.row_remap.correctable": _of("remapped_rows.correctable"),
    "gpu.row_remap.uncorrectable": _of("remapped_rows.uncorrectable"),
    "gpu.retired.single_bit": _of("retired_pages.single_bit_ecc.count"),
    "gpu.retired.double_bit": _of("retired_pages.double_bit.count"),
    "gpu.retired.pending": _pages_pending,
    "gpu.persistence": lambda fields: flag(fields.get("persistence_mode")),
    "gpu.mig": lambda fields: flag(fields.get("mig.mode.current")),
    "gpu.recovery_action": _recovery,
    "gpu.throttle.power_time": _of("violation.power", 0.01),
    "gpu.pcie.rx_rate": _of("pcie.rx", 1e6),
    "gpu.pcie.tx_rate": _of("pcie.tx", 1e6),
    **{signal: _bit(bit) for signal, bit in _OTHER_REASONS.items()},
}
# Read from single reasons only where not all of them are known.
PARTIAL: Mapping[str, Callable[[Fields], Number]] = {
    "gpu.throttle.idle": _bit(readings.IDLE),
    "gpu.throttle.sw_power_cap": _power_cap_under_load,
    "gpu.throttle.sw_thermal": _bit(readings.SW_THERMAL),
    "gpu.throttle.hw_thermal": _bit(readings.HW_THERMAL),
    "gpu.throttle.hw_slowdown": _bit(readings.HW_SLOWDOWN),
    "gpu.throttle.hw_power_brake": _bit(readings.HW_POWER_BRAKE),
    "gpu.throttle.thermal": _partial_thermal,
}
