"""The log of a build or a run (trtexec, or any program that prints what TensorRT says), line by line.

The sentences are TensorRT's own and older than ten years in part; what changes is what stands around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from latdoctor.collectors.tensorrt import printed_layers
from latdoctor.collectors.tensorrt.file_formats import LayerInfo, LayerProfile
from latdoctor.collectors.tensorrt.performance_summary import PerformanceSummary
from latdoctor.sanitize import clean

MAX_BYTES = 128 << 20
_LONGEST = 1000  # bytes of a line that are looked at; verbose logs have longer ones
_NAMED = 3

_PRECISION = re.compile(r"\] Precision: ([A-Z0-9+]+)")
_DEVICE = re.compile(r"Selected Device: ([^(]+)")
_BUILD_SHAPE = re.compile(r"Input build shape(?: \(profile \d+\))?\s*: (.+)=([\dx]+)\+([\dx]+)\+([\dx]+)")
_RUN_SHAPE = re.compile(r"Input inference shape\s*: (.+)=([\dx]+)\s*$")
_REJECTED = re.compile(r"Rejecting some (\w+) implementation of layer (.+?) due to missing (?:int8 )?scales")
_UNCONSTRAINED = re.compile(r"No implementation of layer (.+?) obeys the requested constraints")
_UNFORMATTED = re.compile(r"No implementation obeys reformatting-free rules, at least (\d+) reformatting nodes")
# TensorRT's own words, and those of Triton's backend for it.
OUTSIDE = re.compile(
    r"exceed min ~ max range|does not satisfy any optimization profile"
    r"|model expected the shape of dimension \d+ to be between|failed to set binding dimension to"
)
_FOREIGN = re.compile(
    r"engine plan file across different models of devices|engine plan file is generated on an incompatible device"
)
_SKIPPED = re.compile(
    r"Device memory is insufficient to use tactic|Skipping tactic .{0,80}?insufficient memory|Tactic Device request: "
)
_DLA_FALLBACK = re.compile(r"(?:not supported|unsupported) on DLA.{0,80}?[Ff]alling back to GPU")
# Lines without any of these say nothing that is read here; a verbose log has a million of them.
_WORTH = re.compile(
    rb"Precision: |Selected Device|Input build shape|Input inference shape|median = |Rejecting some|No implementation"
    rb"|exceed min ~ max|any optimization profile|expected the shape of|set binding dimension"
    rb"|engine plan file|Enqueue Time|Engine generation|vertical fusions|hroughput|alltime|coefficient of variance"
    rb"|Total GPU Compute"
    rb"|insufficient|on DLA|percentile: |(?:min|max|mean|median): \d|Host [Ll]atency\s*$|GPU Compute\s*$",
    re.MULTILINE,
)
# Every such log contains one of these; other text contains none.
_MARKS = re.compile(
    rb"TensorRT|\[TRT\]|&&&& |=== (?:Build|Model|Inference) Options ===|optimization profile|trtexec"
    rb"|GPU Compute Time: min = |=== Profile \(\d|=== Performance summary ===|Engine Layer Information"
)
_PRINTED = re.compile(rb"=== Profile \(\d|Layers:\s*$|Engine Layer Information:", re.MULTILINE)


@dataclass(slots=True)
class BuildLog:
    """What was said. `rejected`, `unconstrained` name layers; `outside`, `foreign` hold the sentences, bounded."""

    precision: str = ""
    device: str = ""
    summary: PerformanceSummary = field(default_factory=PerformanceSummary)
    layers: LayerInfo | None = None
    profile: LayerProfile | None = None
    skipped_tactics: int = 0
    dla_fallbacks: int = 0
    rejected: int = 0
    rejected_layers: list[str] = field(default_factory=list)
    unconstrained: int = 0
    unconstrained_layers: list[str] = field(default_factory=list)
    reformats_needed: int | None = None
    outside: int = 0
    outside_said: str = ""
    foreign: str = ""
    is_verbose: bool = False
    is_build: bool = False
    ranges: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    asked: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def beyond(self) -> tuple[str, ...]:
        """Inputs whose shape in the run lies outside what the engine was built for."""
        return tuple(
            name for name, size in self.asked.items() if name in self.ranges and not _within(size, *self.ranges[name])
        )


def is_log(content: bytes) -> bool:
    return _MARKS.search(content) is not None


def read(content: bytes) -> BuildLog:
    """Takes in every line; a log that is cut off says less."""
    log = BuildLog(is_verbose=b"[V] " in content)
    for line in _lines(content):
        _options(log, line)
        _builder(log, line)
        _runtime(log, line)
    if _PRINTED.search(content):
        lines = printed_layers.plain_lines(content.decode("utf-8", "replace"))
        log.layers, log.profile = printed_layers.layer_information(lines), printed_layers.profile(lines)
    return log


def _lines(content: bytes) -> Iterator[str]:
    """The beginnings of the lines that are worth a look."""
    done = 0
    for found in _WORTH.finditer(content):
        if found.start() < done:
            continue
        start = content.rfind(b"\n", done, found.start()) + 1 or done
        end = content.find(b"\n", found.end())
        done = len(content) if end < 0 else end
        yield content[start : min(done, start + _LONGEST)].decode("utf-8", "replace").rstrip("\r")


def _options(log: BuildLog, line: str) -> None:
    if (found := _PRECISION.search(line)) is not None:
        log.precision = found[1][:60]
    elif (found := _DEVICE.search(line)) is not None:
        log.device = clean(found[1], 100).strip()
    elif (found := _BUILD_SHAPE.search(line)) is not None and len(log.ranges) < 100:
        log.ranges[found[1]] = (_size(found[2]), _size(found[4]))
    elif (found := _RUN_SHAPE.search(line)) is not None and len(log.asked) < 100:
        log.asked[found[1]] = _size(found[2])
    else:
        log.summary.add_line(line)


def _builder(log: BuildLog, line: str) -> None:
    log.is_build = log.is_build or "Engine generation completed" in line or "vertical fusions" in line
    if (found := _REJECTED.search(line)) is not None:
        log.rejected += 1
        _name(log.rejected_layers, found[2])
    elif (found := _UNCONSTRAINED.search(line)) is not None:
        log.unconstrained += 1
        _name(log.unconstrained_layers, found[1])
    elif (found := _UNFORMATTED.search(line)) is not None:
        log.reformats_needed = max(log.reformats_needed or 0, int(found[1][:9]))
    elif _SKIPPED.search(line):
        log.skipped_tactics += 1
    elif _DLA_FALLBACK.search(line):
        log.dla_fallbacks += 1


def _runtime(log: BuildLog, line: str) -> None:
    if OUTSIDE.search(line):
        log.outside += 1
        log.outside_said = log.outside_said or clean(line, 300)
    elif _FOREIGN.search(line):
        log.foreign = log.foreign or clean(line, 300)


def _name(into: list[str], name: str) -> None:
    shown = clean(name, 120)
    if len(into) < _NAMED and shown not in into:
        into.append(shown)


def _size(text: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in text.split("x")[:16] if part)


def _within(size: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]) -> bool:
    if not len(size) == len(low) == len(high):
        return True  # another number of dimensions is another tensor, or a slip of ours
    return all(least <= one <= most for least, one, most in zip(low, size, high, strict=True))
