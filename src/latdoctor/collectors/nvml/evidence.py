"""NVML samples turned into evidence: one subject per GPU (gpu/0), and the machine that holds them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.collectors.nvml import GPU_SIGNALS
from latdoctor.collectors.nvml.readings import OUT_OF_RANGE, NotDerived, SignalValue, signal_values
from latdoctor.collectors.nvml.samples import (
    LOST,
    GpuDevice,
    GpuSample,
    NvmlCode,
    NvmlRecord,
    Text,
    Unavailable,
    read_record,
)
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Subject, Value, Window
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

NODE = "node/local"
SOURCE = "nvml"


class _Explanation(NamedTuple):
    """What one return code of NVML means for a signal."""

    reason: str
    code: GapCode
    next_step: str = ""


_EXPLANATIONS = {
    NvmlCode.NOT_SUPPORTED: _Explanation("this GPU does not report it (NVML: not supported)", GapCode.UNSUPPORTED),
    NvmlCode.FUNCTION_NOT_FOUND: _Explanation(
        "this driver is too old to report it (NVML: function not found)", GapCode.UNSUPPORTED, "update the GPU driver"
    ),
    NvmlCode.NO_PERMISSION: _Explanation(
        "NVML reports it to another user only (insufficient permissions)",
        GapCode.PERMISSION,
        "run as root, or as the user who runs the server",
    ),
}

RATES = frozenset({"gpu.ecc.uncorrectable_rate", "gpu.pcie.replay_rate", "gpu.nvlink.error_rate"})


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What the samples say. Raises SourceError where the record is damaged."""
    return Evidence.merge(record_evidence(read_record(artifact), artifact.name) for artifact in artifacts)


def record_evidence(record: NvmlRecord, artifact: str) -> Evidence:
    """What the samples of `record` show; `artifact` names it."""
    samples: dict[int, list[GpuSample]] = {device.index: [] for device in record.devices}
    for sample in record.samples:
        samples[sample.index].append(sample)
    return Evidence.merge(
        [
            _machine(record, samples, Origin(artifact)),
            *(_gpu(record, device, samples[device.index], artifact) for device in record.devices),
        ]
    )


def _machine(record: NvmlRecord, samples: Mapping[int, Sequence[GpuSample]], origin: Origin) -> Evidence:
    """How many GPUs answer. One that this user may not open is neither expected nor counted."""
    window = _window(record.samples)
    allowed = [device for device in record.devices if _refused(device) != NvmlCode.NO_PERMISSION]
    values: list[tuple[str, Value]] = [
        ("gpu.count", float(sum(_answers(samples[device.index][-1]) for device in allowed))),
        ("gpu.count_expected", float(len(allowed))),
    ]
    gaps = []
    texts: tuple[tuple[str, Text], ...] = (
        ("gpu.driver_version", record.driver),
        ("gpu.cuda_driver_version", record.cuda),
    )
    for signal, text in texts:
        if isinstance(text, Unavailable):
            gaps.append(_refusal(NODE, text, [signal], origin))
        else:
            values.append((signal, clean(text)))
    if not record.devices:
        gaps.append(
            Gap(
                SOURCE,
                "the driver lists no GPU",
                GPU_SIGNALS,
                None,
                "check `lspci` and the kernel log",
                origin,
                GapCode.ABSENT,
            )
        )
    readings = tuple(Reading(signal, NODE, value, origin, window) for signal, value in values)
    return Evidence(subjects=(Subject(NODE),), readings=readings, gaps=tuple(gaps))


def _gpu(record: NvmlRecord, device: GpuDevice, samples: Sequence[GpuSample], artifact: str) -> Evidence:
    subject, origin = f"gpu/{device.index}", Origin(artifact, f"GPU {device.index}")
    alive = [sample for sample in samples if not _lost(sample)]
    lost = len(alive) < len(samples)
    known: dict[str, SignalValue] = {
        "gpu.name": (_cleaned(device.name), ""),
        "gpu.uuid": (_cleaned(device.uuid), ""),
        "gpu.pci": (_cleaned(device.pci), ""),
        # What the driver still remembers of a GPU that is lost is no longer true of it.
        **(signal_values(record, device, alive) if alive else {}),
    }
    known = {signal: (_finite(value), note) for signal, (value, note) in known.items()}
    window = _window(alive)
    readings = [
        Reading(signal, subject, value, origin, window, note=note)
        for signal, (value, note) in known.items()
        if not isinstance(value, Unavailable)
    ]
    refused: dict[Unavailable, list[str]] = {}
    for signal, (value, _) in known.items():
        if isinstance(value, Unavailable) and (value.status not in LOST or not lost):
            refused.setdefault(value, []).append(signal)
    mig = device.mig == 1
    gaps = [_refusal(subject, value, signals, origin, mig=mig) for value, signals in refused.items()]
    if lost:
        gaps.insert(0, _loss(subject, samples, alive, origin))
    return Evidence(subjects=(Subject(subject, NODE),), readings=tuple(readings), gaps=tuple(gaps))


def _finite(value: Value | Unavailable) -> Value | Unavailable:
    return OUT_OF_RANGE if isinstance(value, float) and not math.isfinite(value) else value


def _cleaned(text: Text) -> Text:
    return text if isinstance(text, Unavailable) else clean(text, 200)


def _refused(device: GpuDevice) -> int | None:
    """NVML's return code for refusing a handle to the GPU; None if it gave one."""
    return Unavailable(device.refused, device.refused_code).status if device.refused else None


def _refusal(subject: str, value: Unavailable, signals: Sequence[str], origin: Origin, *, mig: bool = False) -> Gap:
    why = _explained(value, mig=mig)
    return Gap(SOURCE, why.reason, tuple(signals), subject, why.next_step, origin, why.code)


def _explained(value: Unavailable, *, mig: bool) -> _Explanation:
    if isinstance(value, NotDerived):
        return _Explanation(value.error, value.gap)
    if mig and value.status == NvmlCode.NOT_SUPPORTED:
        return _Explanation("MIG is on: NVML does not report it for the whole GPU (not supported)", GapCode.UNSUPPORTED)
    known = next((found for code, found in _EXPLANATIONS.items() if code == value.status), None)
    return known or _Explanation(f"NVML returned: {clean(value.error, 200)}", GapCode.REFUSED)


def _loss(subject: str, samples: Sequence[GpuSample], alive: Sequence[GpuSample], origin: Origin) -> Gap:
    after = f"{alive[-1].time - samples[0].time:.1f} s into the window" if alive else "before the window"
    return Gap(
        source=SOURCE,
        reason=f"the GPU was lost {after} (NVML: {_lost(next(s for s in samples if _lost(s)))})",
        signals=GPU_SIGNALS,
        subject=subject,
        next_step="look for Xid 79 or 119 in the kernel log; take the node out of service before it is reset",
        origin=origin,
        code=GapCode.STOPPED,
    )


def _lost(sample: GpuSample) -> str:
    """NVML's error text for a GPU that is gone, if any field has it."""
    fields = (getattr(sample, name) for name in sample.__struct_fields__)
    return next((field.error for field in fields if isinstance(field, Unavailable) and field.status in LOST), "")


def _answers(sample: GpuSample) -> bool:
    """Whether the GPU reports anything of its present state."""
    state = (sample.utilization, sample.memory_used, sample.sm_clock, sample.temperature, sample.power)
    requested = [field for field in state if not isinstance(field, NotDerived)]  # a text may contain none of them
    return not _lost(sample) and (not requested or any(not isinstance(field, Unavailable) for field in requested))


def _window(samples: Sequence[GpuSample]) -> Window:
    return Window(samples[0].time, samples[-1].time) if samples else Window()


def availability(record: NvmlRecord, title: str) -> tuple[SourceAvailability, ...]:
    """What one sample of every GPU shows, for `preflight`."""
    driver = "of unknown version" if isinstance(record.driver, Unavailable) else clean(record.driver)
    count = len(record.devices)
    status = Availability.YES if count else Availability.PARTLY
    rows = [SourceAvailability(title, status, f"driver {driver}, {count} GPU{'s' if count != 1 else ''}")]
    for device in record.devices:
        seen = _gpu(record, device, [s for s in record.samples if s.index == device.index], "")
        # Rates need a window; that they are missing here says nothing.
        hidden = [gap for gap in seen.gaps if set(gap.signals) - RATES]
        name = "" if isinstance(device.name, Unavailable) else clean(device.name, 200)
        status = Availability.NO if not seen.readings else Availability.PARTLY if hidden else Availability.YES
        parts = [name, *(f"{gap.reason}: {', '.join(gap.signals)}" for gap in hidden)]
        detail = "; ".join(part for part in parts if part)
        rows.append(SourceAvailability(f"gpu/{device.index}", status, detail, hidden[0].next_step if hidden else ""))
    return tuple(rows)
