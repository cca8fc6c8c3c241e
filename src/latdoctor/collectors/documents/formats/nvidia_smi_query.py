"""`nvidia-smi -q`: one block of indented `key : value` lines for each GPU.

The values become the record that NVML itself fills, so that text and live samples are judged alike. GPUs are numbered
in the order of the text, as nvidia-smi lists them by index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml import SIGNALS
from latdoctor.collectors.nvml.evidence import record_evidence
from latdoctor.collectors.nvml.readings import HW_POWER_BRAKE, HW_SLOWDOWN, HW_THERMAL, IDLE, SW_POWER_CAP, SW_THERMAL
from latdoctor.collectors.nvml.samples import (
    SCHEMA_VERSION,
    GpuDevice,
    GpuProcess,
    GpuSample,
    NvmlCode,
    NvmlRecord,
    Unavailable,
)
from latdoctor.evidence.model import Evidence
from latdoctor.evidence.subject_branch import normalise_pci

_PAIR = re.compile(r"(?P<indent> *)(?P<key>[^:]+?)\s*(?: : ?(?P<value>.*))?$")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?=\s*(?:[A-Za-z%/]+)?$)")
_FACTORS = {"MHz": 1e6, "MiB": float(1 << 20), "%": 0.01}
_LONGEST = 100_000  # lines

Block = Mapping[tuple[str, ...], str]

# Clock reasons were throttle reasons before driver 535.
_REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")
_BITS = {
    ("Idle",): IDLE,
    ("SW Power Cap",): SW_POWER_CAP,
    ("HW Slowdown",): HW_SLOWDOWN,
    ("HW Slowdown", "HW Thermal Slowdown"): HW_THERMAL,
    ("HW Slowdown", "HW Power Brake Slowdown"): HW_POWER_BRAKE,
    ("SW Thermal Slowdown",): SW_THERMAL,
}
_POWER = ("GPU Power Readings", "Power Readings")
_MISSING = Unavailable("not in the text", NvmlCode.NOT_SUPPORTED)


def read(section: Section) -> Evidence:
    """The state of every GPU in the text. Raises ValueError where it has none."""
    head, blocks = _blocks(section.text.splitlines()[:_LONGEST])
    if not blocks:
        raise ValueError("it lists no GPU")
    time = _time(head.get(("Timestamp",), ""), section.taken_at)
    record = NvmlRecord(
        SCHEMA_VERSION,
        _text(head, "Driver Version"),
        _text(head, "CUDA Version"),
        None,
        (),
        tuple(_device(index, pci, block) for index, (pci, block) in enumerate(blocks)),
        tuple(_sample(index, time, block) for index, (_, block) in enumerate(blocks)),
    )
    return record_evidence(record, section.artifact)


def _blocks(lines: Sequence[str]) -> tuple[Block, list[tuple[str, Block]]]:
    """The values before the first GPU, and those of each GPU by their path of keys."""
    head: dict[tuple[str, ...], str] = {}
    blocks: list[tuple[str, Block]] = []
    current = head
    path: list[tuple[int, str]] = []
    for line in lines:
        if gpu := _GPU.match(line):
            current = {}
            blocks.append((gpu[1], current))
            path = []
            continue
        pair = _PAIR.match(line.rstrip())
        if not pair or not pair["key"].strip():
            continue
        indent = len(pair["indent"])
        path = [(depth, key) for depth, key in path if depth < indent]
        path.append((indent, pair["key"].strip()))
        if pair["value"] is not None:
            current.setdefault(tuple(key for _, key in path), pair["value"].strip())
    return head, blocks


def _device(index: int, pci: str, block: Block) -> GpuDevice:
    mig = block.get(("MIG Mode", "Current"), "")
    return GpuDevice(
        index=index,
        name=_text(block, "Product Name"),
        uuid=_text(block, "GPU UUID"),
        pci=normalise_pci(pci),
        sm_clock_max=_number(block, "Max Clocks", "SM"),
        temperature_slowdown=_number(block, "Temperature", "GPU Slowdown Temp"),
        pcie_width_max=_lanes(block, "Max"),
        pcie_generation_max=_number(block, "PCI", "GPU Link Info", "PCIe Generation", "Max"),
        mig=1 if mig == "Enabled" else 0 if mig == "Disabled" else _MISSING,
    )


def _sample(index: int, time: float, block: Block) -> GpuSample:
    state = block.get(("Performance State",), "")
    return GpuSample(
        time=time,
        index=index,
        utilization=_first(block, ("Utilization", "GPU"), ("Utilization", "Gpu")),
        performance_state=float(state[1:]) if re.fullmatch(r"P\d{1,2}", state) else _MISSING,
        memory_used=_number(block, "FB Memory Usage", "Used"),
        memory_total=_number(block, "FB Memory Usage", "Total"),
        sm_clock=_number(block, "Clocks", "SM"),
        temperature=_number(block, "Temperature", "GPU Current Temp"),
        temperature_margin=_margin(block),
        power=_power(block, "Instantaneous Power Draw", "Average Power Draw", "Power Draw"),
        power_limit=_power(block, "Enforced Power Limit", "Current Power Limit", "Power Limit"),
        clock_reasons=_reasons(block),
        ecc_uncorrectable=_uncorrectable(block),
        row_remap_pending=_flag(block, "Remapped Rows", "Pending"),
        row_remap_failed=_flag(block, "Remapped Rows", "Remapping Failure Occurred"),
        pcie_width=_lanes(block, "Current"),
        pcie_generation=_number(block, "PCI", "GPU Link Info", "PCIe Generation", "Current"),
        pcie_replays=_number(block, "PCI", "Replays Since Reset"),
        processes=_processes(block),
        links=None,
    )


def _margin(block: Block) -> float | Unavailable:
    """The driver's own margin: its T.Limit is the distance to the slowdown threshold, which is given as T.Limit too."""
    now = _number(block, "Temperature", "GPU T.Limit Temp")
    slowdown = _number(block, "Temperature", "GPU Slowdown T.Limit Temp")
    if isinstance(now, Unavailable) or isinstance(slowdown, Unavailable):
        return now
    return now - slowdown


def _reasons(block: Block) -> int | Unavailable:
    for heading in _REASONS:
        states = {bit: block.get((heading, *path)) for path, bit in _BITS.items()}
        if any(state is not None for state in states.values()):
            return sum(bit for bit, state in states.items() if state == "Active")
    return _MISSING


def _uncorrectable(block: Block) -> float | Unavailable:
    """All uncorrectable errors since the driver was loaded; the kinds of memory differ between generations."""
    found = [
        value
        for path in block
        if path[:2] == ("ECC Errors", "Volatile") and "Uncorrectable" in path[-1]
        and not isinstance(value := _number(block, *path), Unavailable)
    ]  # fmt: skip
    return sum(found) if found else _MISSING


def _processes(block: Block) -> tuple[GpuProcess, ...] | Unavailable:
    # Blocks of several processes repeat their keys, of which only the first is kept: their number is not known.
    return _MISSING


def _power(block: Block, *names: str) -> float | Unavailable:
    return _first(block, *((heading, name) for name in names for heading in _POWER))


def _first(block: Block, *paths: tuple[str, ...]) -> float | Unavailable:
    values = (_number(block, *path) for path in paths)
    return next((value for value in values if not isinstance(value, Unavailable)), _MISSING)


def _number(block: Block, *path: str) -> float | Unavailable:
    """A number in base units; unavailable for `N/A`, a missing key, or anything else."""
    text = block.get(path, "")
    found = _NUMBER.match(text)
    if not found:
        return _MISSING
    unit = text[found.end() :].strip()
    return float(found[0]) * _FACTORS.get(unit, 1.0)


def _lanes(block: Block, which: str) -> float | Unavailable:
    """PCIe lanes of `16x`."""
    found = re.fullmatch(r"(\d{1,2})x", block.get(("PCI", "GPU Link Info", "Link Width", which), ""))
    return float(found[1]) if found else _MISSING


def _flag(block: Block, *path: str) -> float | Unavailable:
    return {"Yes": 1.0, "No": 0.0}.get(block.get(path, ""), _MISSING)


def _text(block: Block, *path: str) -> str | Unavailable:
    text = block.get(path, "")
    return text if text and text != "N/A" else _MISSING


def _time(text: str, otherwise: float) -> float:
    """`Thu Jan 15 02:04:13 2026`, taken as UTC."""
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return otherwise


FORMAT = TextFormat(
    name="nvidia-smi-q",
    title="nvidia-smi -q",
    begins=re.compile(r"^=+ ?NVSMI LOG ?=+"),
    confirms=re.compile(r"^GPU [0-9A-Fa-f]{4,8}:", re.MULTILINE),
    read=read,
    provides=frozenset(SIGNALS),
    contains_times=True,
)
