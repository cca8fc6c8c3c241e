"""`nvidia-smi -q -x`: the same values as XML, one document for each output of a loop."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from msgspec import structs

from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES, Machine, evidence_of
from latdoctor.collectors.documents.nvidia_smi.fields import REASONS, Fields, GpuState
from latdoctor.collectors.documents.nvidia_smi.values import MISSING, number, refusal, time_of, word
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml.samples import GpuProcess, Unavailable
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode

_POWER = ("gpu_power_readings", "power_readings")
_REASONS = ("clocks_event_reasons/clocks_event_reason", "clocks_throttle_reasons/clocks_throttle_reason")
_LINK = "pci/pci_gpu_link_info"
# The elements of each field; the first that has a value counts.
_PATHS: Mapping[str, tuple[str, ...]] = {
    "name": ("product_name",),
    "uuid": ("uuid",),
    "pci.bus_id": ("pci/pci_bus_id",),
    "pstate": ("performance_state", "perf_state"),
    "fan.speed": ("fan_speed",),
    "persistence_mode": ("persistence_mode",),
    "mig.mode.current": ("mig_mode/current_mig",),
    "gpu_recovery_action": ("gpu_recovery_action",),
    "utilization.gpu": ("utilization/gpu_util",),
    "utilization.memory": ("utilization/memory_util",),
    "utilization.encoder": ("utilization/encoder_util",),
    "utilization.decoder": ("utilization/decoder_util",),
    "memory.total": ("fb_memory_usage/total", "memory_usage/total"),
    "memory.reserved": ("fb_memory_usage/reserved",),
    "memory.used": ("fb_memory_usage/used", "memory_usage/used"),
    "memory.free": ("fb_memory_usage/free", "memory_usage/free"),
    "clocks.current.graphics": ("clocks/graphics_clock",),
    "clocks.current.sm": ("clocks/sm_clock",),
    "clocks.current.memory": ("clocks/mem_clock",),
    "clocks.current.video": ("clocks/video_clock",),
    "clocks.max.sm": ("max_clocks/sm_clock",),
    "clocks.max.memory": ("max_clocks/mem_clock",),
    "temperature.gpu": ("temperature/gpu_temp",),
    "temperature.gpu.slowdown": ("temperature/gpu_temp_slow_threshold",),
    "temperature.gpu.tlimit": ("temperature/gpu_temp_tlimit",),
    "temperature.gpu.tlimit.slowdown": ("temperature/gpu_temp_slow_tlimit_threshold",),
    "temperature.memory": ("temperature/memory_temp",),
    "temperature.memory.max": ("temperature/gpu_temp_max_mem_threshold",),
    "power.draw": tuple(
        f"{power}/{name}" for name in ("instant_power_draw", "power_draw", "average_power_draw") for power in _POWER
    ),
    "power.limit": tuple(
        f"{power}/{name}" for name in ("enforced_power_limit", "current_power_limit", "power_limit") for power in _POWER
    ),
    "power.default_limit": tuple(f"{power}/default_power_limit" for power in _POWER),
    "pcie.link.gen.current": (f"{_LINK}/pcie_gen/device_current_link_gen", f"{_LINK}/pcie_gen/current_link_gen"),
    "pcie.link.gen.max": (f"{_LINK}/pcie_gen/max_link_gen",),
    "pcie.link.width.current": (f"{_LINK}/link_widths/current_link_width",),
    "pcie.link.width.max": (f"{_LINK}/link_widths/max_link_width",),
    "pcie.replays": ("pci/replay_counter",),
    "pcie.rx": ("pci/rx_util",),
    "pcie.tx": ("pci/tx_util",),
    "remapped_rows.correctable": ("remapped_rows/remapped_row_corr",),
    "remapped_rows.uncorrectable": ("remapped_rows/remapped_row_unc",),
    "remapped_rows.pending": ("remapped_rows/remapped_row_pending",),
    "remapped_rows.failure": ("remapped_rows/remapped_row_failure",),
    "retired_pages.single_bit_ecc.count": ("retired_pages/multiple_single_bit_retirement/retired_count",),
    "retired_pages.double_bit.count": ("retired_pages/double_bit_retirement/retired_count",),
    "fabric.state": ("fabric/state",),
    "fabric.status": ("fabric/status",),
    "license_status": ("vgpu_software_licensed_product/license_status", "grid_licensed_product/license_status"),
    "retired_pages.pending": ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    **{f"clocks_event_reasons.{name}": tuple(f"{reasons}_{name}" for reasons in _REASONS) for name in REASONS},
}
_DOCUMENT = re.compile(r"<nvidia_smi_log\b.*?</nvidia_smi_log>", re.DOTALL)
_CUT = (3, 5, 6)  # expat: no element, or a token or character that does not end
_LARGEST = 32 << 20  # characters of all documents
_MOST_DOCUMENTS = 5000


class _Element(Protocol):
    def findtext(self, path: str) -> str | None: ...
    def iterfind(self, path: str) -> Iterator[_Element]: ...
    def get(self, name: str) -> str | None: ...
    def remove(self, child: _Element) -> None: ...
    def __iter__(self) -> Iterator[_Element]: ...
    @property
    def tag(self) -> str: ...
    @property
    def text(self) -> str | None: ...


def read(section: Section) -> Evidence:
    """The state of every GPU in the documents; of one that is cut in the middle, what stands before the cut.

    Raises ValueError where no GPU is listed.
    """
    text = section.text[:_LARGEST]
    roots = list(_roots(text))
    cut = _cut_root(text)
    if cut is not None:
        _without_open_section(cut)
    states = [state for root in [*roots, *([cut] if cut is not None else [])] for state in _states(root)]
    if not states:
        raise ValueError("no document in it lists a GPU")
    head = roots[-1] if roots or cut is None else cut
    attached = number(head.findtext("attached_gpus"))
    machine = Machine(
        word(head.findtext("driver_version")),
        word(head.findtext("cuda_version")),
        None if isinstance(attached, Unavailable) else int(attached),
        lists_all=bool(roots),
    )
    found = evidence_of(states, machine, section)
    if cut is None:
        return found
    entries = len(list(cut.iterfind("gpu")))
    reason = f"{section.source}: nvidia-smi -q -x is cut in the middle: {entries} GPUs read, the last in part"
    gap = Gap(NAME, reason, (), None, "nvidia-smi -q -x > gpu.xml", section.origin(), GapCode.UNREADABLE)
    return structs.replace(found, gaps=(*found.gaps, gap))


def _roots(text: str) -> Iterator[_Element]:
    """Each document without its declaration of a type, which names only a file of the driver."""
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]  # it ships no types
    from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

    for number_of, found in enumerate(_DOCUMENT.finditer(text)):
        if number_of >= _MOST_DOCUMENTS:
            return
        try:
            root: _Element = fromstring(found[0])
        except (ParseError, DefusedXmlException) as error:
            raise ValueError(f"it is no well-formed XML: {error}") from error
        yield root


def _cut_root(text: str) -> _Element | None:
    """The last document with what stands before its cut; None where it is whole. Raises ValueError."""
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import iterparse

    begin = text.rfind("<nvidia_smi_log")
    if begin < 0 or "</nvidia_smi_log>" in text[begin:]:
        return None
    root: _Element | None = None
    try:
        for _, element in iterparse(io.StringIO(text[begin:]), events=("start",)):
            root = element if root is None else root
    except (ParseError, DefusedXmlException) as error:
        if getattr(error, "code", None) not in _CUT:
            raise ValueError(f"it is no well-formed XML: {error}") from error
    return root


def _without_open_section(root: _Element) -> None:
    """Drop the section of the last GPU in which the text ends: a part of a list of errors is no sum of them."""
    gpus = list(root.iterfind("gpu"))
    sections = list(gpus[-1]) if gpus else []
    if sections:
        gpus[-1].remove(sections[-1])


def _states(root: _Element) -> Iterator[GpuState]:
    time = time_of(root.findtext("timestamp") or "")
    for index, gpu in enumerate(root.iterfind("gpu")):
        yield GpuState(index, _fields(gpu), time, _processes(gpu))


def _fields(gpu: _Element) -> Fields:
    found: dict[str, str] = {}
    if bus := gpu.get("id"):
        found["pci.bus_id"] = bus
    for name, paths in _PATHS.items():
        texts = [text.strip() for path in paths if (text := gpu.findtext(path)) is not None]
        if texts:
            found[name] = next((text for text in texts if refusal(text) is None), texts[0])
    for which in ("current", "max"):
        name = f"pcie.link.width.{which}"
        if name in found:
            found[name] = found[name].removesuffix("x")
    for kind, old in (("uncorrect", "double_bit"), ("correct", "single_bit")):
        for period in ("volatile", "aggregate"):
            total = _errors(gpu, period, kind, old)
            if total is not None:
                found[f"ecc.errors.{kind}ed.{period}.total"] = f"{total:.0f}"
    return found


def _errors(gpu: _Element, period: str, kind: str, old: str) -> float | None:
    """All errors of a kind; the kinds of memory differ between generations."""
    total = number(gpu.findtext(f"ecc_errors/{period}/{old}/total"))
    if not isinstance(total, Unavailable):
        return total
    found = [
        value
        for one in gpu.iterfind(f"ecc_errors/{period}/*")
        if f"_{kind}able" in one.tag and not isinstance(value := number(one.text), Unavailable)
    ]
    return sum(found) if found else None


def _processes(gpu: _Element) -> tuple[GpuProcess, ...] | Unavailable:
    listed = next(iter(gpu.iterfind("processes")), None)
    if listed is None or refusal(listed.text) not in (None, MISSING):
        return MISSING
    found = []
    for one in listed.iterfind("process_info"):
        pid, memory = number(one.findtext("pid")), number(one.findtext("used_memory"))
        if not isinstance(pid, Unavailable):
            held = None if isinstance(memory, Unavailable) else memory
            found.append(GpuProcess(int(pid), held, (one.findtext("process_name") or "").strip()))
    return tuple(found)


FORMAT = TextFormat(
    name="nvidia-smi-xml",
    title="nvidia-smi -q -x",
    begins=re.compile(r"<nvidia_smi_log\b"),
    read=read,
    provides=PROVIDES,
    whole=True,
)
