"""`nvidia-smi -q`: one block of indented `key : value` lines for each GPU, repeated with `-l`.

The keys become the names of `--query-gpu`, so that every output of nvidia-smi is judged alike. GPUs are numbered in
the order of the text, as nvidia-smi lists them by index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES, Machine, evidence_of
from latdoctor.collectors.documents.nvidia_smi.fields import Fields, GpuState
from latdoctor.collectors.documents.nvidia_smi.values import MISSING, number, refusal, time_of, word
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml.samples import GpuProcess, Unavailable
from latdoctor.evidence.model import Evidence

_HEADING = re.compile(r"=+ ?NVSMI LOG ?=+")
_PAIR = re.compile(r"(?P<indent> *)(?P<key>[^:]+?)\s*(?: : ?(?P<value>.*)| :)?$")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_LONGEST = 1_000_000  # lines

Path = tuple[str, ...]

# Clock reasons were throttle reasons before driver 535, and power readings those of the module on some boards.
_REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")
_POWER = ("GPU Power Readings", "Power Readings")
_LINK = ("PCI", "GPU Link Info")
# The paths of keys of each field; the first that has a value counts.
_PATHS: Mapping[str, tuple[Path, ...]] = {
    "name": (("Product Name",),),
    "uuid": (("GPU UUID",),),
    "pstate": (("Performance State",),),
    "fan.speed": (("Fan Speed",),),
    "persistence_mode": (("Persistence Mode",),),
    "mig.mode.current": (("MIG Mode", "Current"),),
    "gpu_recovery_action": (("GPU Recovery Action",),),
    "utilization.gpu": (("Utilization", "GPU"), ("Utilization", "Gpu")),
    "utilization.memory": (("Utilization", "Memory"),),
    "utilization.encoder": (("Utilization", "Encoder"),),
    "utilization.decoder": (("Utilization", "Decoder"),),
    "memory.total": (("FB Memory Usage", "Total"),),
    "memory.reserved": (("FB Memory Usage", "Reserved"),),
    "memory.used": (("FB Memory Usage", "Used"),),
    "memory.free": (("FB Memory Usage", "Free"),),
    "clocks.current.graphics": (("Clocks", "Graphics"),),
    "clocks.current.sm": (("Clocks", "SM"),),
    "clocks.current.memory": (("Clocks", "Memory"),),
    "clocks.current.video": (("Clocks", "Video"),),
    "clocks.max.sm": (("Max Clocks", "SM"),),
    "clocks.max.memory": (("Max Clocks", "Memory"),),
    "temperature.gpu": (("Temperature", "GPU Current Temp"),),
    "temperature.gpu.slowdown": (("Temperature", "GPU Slowdown Temp"),),
    "temperature.gpu.tlimit": (("Temperature", "GPU T.Limit Temp"),),
    "temperature.gpu.tlimit.slowdown": (("Temperature", "GPU Slowdown T.Limit Temp"),),
    "temperature.memory": (("Temperature", "Memory Current Temp"),),
    "temperature.memory.max": (("Temperature", "Memory Max Operating Temp"),),
    "power.draw": tuple(
        (power, key) for key in ("Instantaneous Power Draw", "Average Power Draw", "Power Draw") for power in _POWER
    ),
    "power.limit": tuple(
        (power, key) for key in ("Enforced Power Limit", "Current Power Limit", "Power Limit") for power in _POWER
    ),
    "power.default_limit": tuple((power, "Default Power Limit") for power in _POWER),
    "pcie.link.gen.current": ((*_LINK, "PCIe Generation", "Current"),),
    "pcie.link.gen.max": ((*_LINK, "PCIe Generation", "Max"),),
    "pcie.replays": (("PCI", "Replays Since Reset"),),
    "ecc.errors.corrected.aggregate.total": (("ECC Errors", "Aggregate", "Single Bit", "Total"),),
    "ecc.errors.uncorrected.aggregate.total": (("ECC Errors", "Aggregate", "Double Bit", "Total"),),
    "remapped_rows.correctable": (("Remapped Rows", "Correctable Error"),),
    "remapped_rows.uncorrectable": (("Remapped Rows", "Uncorrectable Error"),),
    "remapped_rows.pending": (("Remapped Rows", "Pending"),),
    "remapped_rows.failure": (("Remapped Rows", "Remapping Failure Occurred"),),
    "retired_pages.single_bit_ecc.count": (("Retired Pages", "Single Bit ECC"),),
    "retired_pages.double_bit.count": (("Retired Pages", "Double Bit ECC"),),
    "fabric.state": (("Fabric", "State"),),
    "fabric.status": (("Fabric", "Status"),),
    "license_status": tuple(
        (product, "License Status") for product in ("vGPU Software Licensed Product", "GRID Licensed Product")
    ),
    "retired_pages.pending": (("Retired Pages", "Pending Page Blacklist"), ("Retired Pages", "Pending")),
    **{
        f"clocks_event_reasons.{name}": tuple((reasons, *path) for reasons in _REASONS)
        for name, path in (
            ("gpu_idle", ("Idle",)),
            ("sw_power_cap", ("SW Power Cap",)),
            ("hw_slowdown", ("HW Slowdown",)),
            ("hw_thermal_slowdown", ("HW Slowdown", "HW Thermal Slowdown")),
            ("hw_power_brake_slowdown", ("HW Slowdown", "HW Power Brake Slowdown")),
            ("sw_thermal_slowdown", ("SW Thermal Slowdown",)),
        )
    },
}


@dataclass(slots=True)
class _Block:
    """The values of one GPU, or those before the first, by their path of keys; processes repeat their keys."""

    pci: str = ""
    time: float | None = None
    values: dict[Path, str] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)


def read(section: Section) -> Evidence:
    """The state of every GPU in the text. Raises ValueError where it has none."""
    head, blocks = _blocks(section.text.splitlines()[:_LONGEST])
    if not blocks:
        raise ValueError("it lists no GPU")
    attached = number(head.values.get(("Attached GPUs",)))
    machine = Machine(
        word(head.values.get(("Driver Version",))),
        word(head.values.get(("CUDA Version",))),
        None if isinstance(attached, Unavailable) else int(attached),
        # `-i N` and an excerpt show some of the attached GPUs; the others are not lost.
        lists_all=isinstance(attached, Unavailable) or len({block.pci for block in blocks}) >= attached,
    )
    return evidence_of(list(_states(blocks)), machine, section)


def _blocks(lines: Sequence[str]) -> tuple[_Block, list[_Block]]:
    """The values before the first GPU, and those of each GPU of each repetition."""
    head = current = _Block()
    first = head
    blocks: list[_Block] = []
    path: list[tuple[int, str]] = []
    for line in lines:
        if _HEADING.match(line):
            head = current = _Block()
            first, path = (first if first.values else head), []
            continue
        if gpu := _GPU.match(line):
            current = _Block(gpu[1], time_of(head.values.get(("Timestamp",), "")))
            blocks.append(current)
            path = []
            continue
        pair = _PAIR.match(line.rstrip())
        if not pair or not pair["key"].strip():
            continue
        indent = len(pair["indent"])
        path = [(depth, key) for depth, key in path if depth < indent]
        path.append((indent, pair["key"].strip()))
        if pair["value"] is not None:
            _keep(current, tuple(key for _, key in path), pair["value"].strip())
    return (first if first.values else head), blocks


def _keep(block: _Block, path: Path, value: str) -> None:
    if path[0] == "Processes":
        if path[-1] == "Process ID":
            block.processes.append({})
        if block.processes:
            block.processes[-1][path[-1]] = value
    block.values.setdefault(path, value)


def _states(blocks: Iterable[_Block]) -> Iterator[GpuState]:
    """GPUs are numbered in the order in which they first stand in the text."""
    numbers: dict[str, int] = {}
    for block in blocks:
        index = numbers.setdefault(block.pci, len(numbers))
        yield GpuState(index, _fields(block), block.time, _processes(block))


def _fields(block: _Block) -> Fields:
    found = {"pci.bus_id": block.pci}
    for name, paths in _PATHS.items():
        texts = [block.values[path] for path in paths if path in block.values]
        if texts:
            found[name] = next((text for text in texts if refusal(text) is None), texts[0])
    for which, key in (("current", "Current"), ("max", "Max")):
        lanes = block.values.get((*_LINK, "Link Width", key))
        if lanes is not None:
            found[f"pcie.link.width.{which}"] = lanes.removesuffix("x")
    for kind, words in (("uncorrected", ("Uncorrectable", "Double Bit")), ("corrected", ("Correctable", "Single Bit"))):
        for period in ("Volatile", "Aggregate"):
            total = _errors(block, period, words)
            if total is not None:
                found.setdefault(f"ecc.errors.{kind}.{period.lower()}.total", f"{total:.0f}")
    return found


def _errors(block: _Block, period: str, words: tuple[str, str]) -> float | None:
    """All errors of a kind; the kinds of memory differ between generations."""
    new, old = words
    total = number(block.values.get(("ECC Errors", period, old, "Total")))
    if not isinstance(total, Unavailable):
        return total
    found = [
        value
        for path, text in block.values.items()
        if path[:2] == ("ECC Errors", period) and len(path) == 3 and f" {new}" in path[-1]
        and not isinstance(value := number(text), Unavailable)
    ]  # fmt: skip
    return sum(found) if found else None


def _processes(block: _Block) -> tuple[GpuProcess, ...] | Unavailable:
    if block.values.get(("Processes",)) == "None":
        return ()
    found = []
    for one in block.processes:
        pid, memory = number(one.get("Process ID")), number(one.get("Used GPU Memory"))
        if not isinstance(pid, Unavailable):
            known = None if isinstance(memory, Unavailable) else memory
            found.append(GpuProcess(int(pid), known, one.get("Name", "")))
    return tuple(found) or MISSING


FORMAT = TextFormat(
    name="nvidia-smi-q",
    title="nvidia-smi -q",
    begins=re.compile(r"^=+ ?NVSMI LOG ?=+"),
    confirms=re.compile(r"^GPU [0-9A-Fa-f]{4,8}:", re.MULTILINE),
    read=read,
    provides=PROVIDES,
    contains_times=True,
    repeats=True,
)
