"""NVML samples turned into evidence: one subject per GPU (gpu/0), and the machine that holds them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from latdoctor.collectors.base import SourceAvailability
from latdoctor.collectors.nvml import GPU_SIGNALS
from latdoctor.collectors.nvml.readings import OUT_OF_RANGE, OWN_WORDS, SignalValue, told_of
from latdoctor.collectors.nvml.samples import (
    LOST,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    GpuDevice,
    GpuSample,
    NvmlRecord,
    Text,
    Unavailable,
    read_record,
)
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Subject, Value, Window
from latdoctor.sanitize import clean

NODE = "node/local"
SOURCE = "nvml"

_WHY = {
    NOT_SUPPORTED: "this GPU does not tell it (NVML: not supported)",
    NOT_FOUND: "this driver is too old to tell it (NVML: function not found)",
    NO_PERMISSION: "NVML tells it to another user only (insufficient permissions)",
}
_HELP = {
    NOT_FOUND: "update the GPU driver",
    NO_PERMISSION: "run as root, or as the user who runs the server",
}

RATES = frozenset({"gpu.ecc.uncorrectable_rate", "gpu.pcie.replay_rate", "gpu.nvlink.error_rate"})


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What the samples say. Raises SourceError where the record is damaged."""
    return Evidence.merge(_parse(read_record(artifact), artifact.name) for artifact in artifacts)


def _parse(record: NvmlRecord, artifact: str) -> Evidence:
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
    allowed = [device for device in record.devices if device.refused != NO_PERMISSION]
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
            gaps.append(_refusal(NODE, text.error, [signal], origin))
        else:
            values.append((signal, clean(text)))
    if not record.devices:
        gaps.append(
            Gap(SOURCE, "the driver sees no GPU", GPU_SIGNALS, None, "look at `lspci` and the kernel log", origin)
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
        **(told_of(record, device, alive) if alive else {}),
    }
    known = {signal: (_finite(value), note) for signal, (value, note) in known.items()}
    window = _window(alive)
    readings = [
        Reading(signal, subject, value, origin, window, note=note)
        for signal, (value, note) in known.items()
        if not isinstance(value, Unavailable)
    ]
    refused: dict[str, list[str]] = {}
    for signal, (value, _) in known.items():
        if isinstance(value, Unavailable) and (value.error not in LOST or not lost):
            refused.setdefault(value.error, []).append(signal)
    mig = device.mig == 1
    gaps = [_refusal(subject, word, signals, origin, mig=mig) for word, signals in refused.items()]
    if lost:
        gaps.insert(0, _loss(subject, samples, alive, origin))
    return Evidence(subjects=(Subject(subject, NODE),), readings=tuple(readings), gaps=tuple(gaps))


def _finite(value: Value | Unavailable) -> Value | Unavailable:
    return Unavailable(OUT_OF_RANGE) if isinstance(value, float) and not math.isfinite(value) else value


def _cleaned(text: Text) -> Text:
    return text if isinstance(text, Unavailable) else clean(text, 200)


def _refusal(subject: str, word: str, signals: Sequence[str], origin: Origin, *, mig: bool = False) -> Gap:
    why = word if word in OWN_WORDS else _WHY.get(word, f"NVML says: {clean(word, 200)}")
    if mig and word == NOT_SUPPORTED:
        why = "MIG is on: NVML does not tell it for the whole GPU (not supported)"
    return Gap(SOURCE, f"{subject}: {why}", tuple(signals), subject, _HELP.get(word, ""), origin)


def _loss(subject: str, samples: Sequence[GpuSample], alive: Sequence[GpuSample], origin: Origin) -> Gap:
    after = f"{alive[-1].time - samples[0].time:.1f} s into the window" if alive else "before the window"
    return Gap(
        source=SOURCE,
        reason=f"{subject}: the GPU was lost {after} (NVML: {_lost(next(s for s in samples if _lost(s)))})",
        signals=GPU_SIGNALS,
        subject=subject,
        next_step="look for Xid 79 or 119 in the kernel log; take the node out of service before it is reset",
        origin=origin,
    )


def _lost(sample: GpuSample) -> str:
    """NVML's word for a GPU that is gone, if any field has it."""
    fields = (getattr(sample, name) for name in sample.__struct_fields__)
    return next((field.error for field in fields if isinstance(field, Unavailable) and field.error in LOST), "")


def _answers(sample: GpuSample) -> bool:
    """Does the GPU tell anything of its present state?"""
    state = (sample.utilization, sample.memory_used, sample.sm_clock, sample.temperature, sample.power)
    return not _lost(sample) and any(not isinstance(field, Unavailable) for field in state)


def _window(samples: Sequence[GpuSample]) -> Window:
    return Window(samples[0].time, samples[-1].time) if samples else Window()


def sights(record: NvmlRecord, title: str) -> tuple[SourceAvailability, ...]:
    """What one sample of every GPU shows, for `preflight`."""
    driver = "of unknown version" if isinstance(record.driver, Unavailable) else clean(record.driver)
    count = len(record.devices)
    status = "yes" if count else "partly"
    rows = [SourceAvailability(title, status, f"driver {driver}, {count} GPU{'s' if count != 1 else ''}")]
    for device in record.devices:
        seen = _gpu(record, device, [s for s in record.samples if s.index == device.index], "")
        # Rates need a window; that they are missing here says nothing.
        hidden = [gap for gap in seen.gaps if set(gap.signals) - RATES]
        name = "" if isinstance(device.name, Unavailable) else clean(device.name, 200)
        status = "no" if not seen.readings else "partly" if hidden else "yes"
        detail = "; ".join([name, *(f"{gap.reason}: {', '.join(gap.signals)}" for gap in hidden)])
        rows.append(
            SourceAvailability(
                f"gpu/{device.index}", status, detail.removeprefix("; "), hidden[0].next_step if hidden else ""
            )
        )
    return tuple(rows)
