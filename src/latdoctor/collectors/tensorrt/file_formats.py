"""The files of a TensorRT engine, each recognised by its contents and not by its name.

Layer information (--exportLayerInfo), the profile of the layers (--exportProfile), the times of the runs
(--exportTimes), and what trt-engine-explorer extracts from logs (metadata). Times are in milliseconds in the files and
in seconds here. A value of the wrong kind is left out; a file of another kind is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

MAX_BYTES = 64 << 20
MAX_LAYERS = 200_000
_HOW = "give what trtexec wrote with --exportLayerInfo, --exportProfile, --exportTimes, or its log"
_LONGEST = 300  # characters of a name


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    form: str  # `Row major linear FP32`
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """One layer as the builder made it. `origin` of a Reformat: QDQ, REFORMAT."""

    name: str
    kind: str
    parameter: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    origin: str
    tactic: str


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """`names_only`: the engine was built without detailed verbosity, and its layers have only names."""

    listed: tuple[EngineLayer, ...]
    bindings: frozenset[str]
    names_only: bool


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The mean time of each layer, in file order."""

    times: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Of each run: the GPU's time, the host's time for enqueueing it, and that of the copies."""

    compute: tuple[float, ...]
    enqueue: tuple[float, ...]
    copies: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EngineMetadata:
    """What a log or its extract says beside the layers; empty or None where it says nothing."""

    device: str = ""
    precision: str = ""  # `FP32+FP16+INT8`: what the build was allowed
    enqueue: float | None = None  # medians
    compute: float | None = None
    copies: float | None = None


Document = LayerInfo | LayerProfile | RunTimes | EngineMetadata


def read(content: bytes, where: str) -> Document:
    """The contents of a JSON file. Raises SourceError for what is no JSON, or of no kind that is known here."""
    try:
        whole = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except UNDECODABLE as error:
        raise SourceError(f"is no readable JSON: {error}", where=where, next_step=_HOW) from error
    found = (
        _of_mapping(whole, where) if isinstance(whole, dict) else _of_list(whole) if isinstance(whole, list) else None
    )
    if found is None:
        raise SourceError("tells nothing of a TensorRT engine", where=where, next_step=_HOW, code=GapCode.UNSUPPORTED)
    return found


def _of_mapping(document: Mapping[object, object], where: str) -> Document | None:
    listed = document.get("Layers")
    if isinstance(listed, list):
        return _layers(listed, document, where)
    if any(key in document for key in ("performance_summary", "device_information", "inference_options")):
        return _measured(document)
    if "build_options" in document:
        options = _mapping(document.get("build_options"))
        return EngineMetadata(precision=_text(options.get("Precision")))
    return None


def _of_list(document: Sequence[object]) -> Document | None:
    rows = [row for row in document if isinstance(row, dict)]
    if any("averageMs" in row or "percentage" in row for row in rows):
        return LayerProfile(tuple(_profile(rows)))
    if any("computeMs" in row or "startEnqMs" in row or "latencyMs" in row for row in rows):
        return _runs(rows)
    if rows and "ComputeCapability" in rows[0]:
        return EngineMetadata(device=_text(rows[0].get("Name")))
    return None


def _layers(listed: Sequence[object], document: Mapping[object, object], where: str) -> LayerInfo:
    if len(listed) > MAX_LAYERS:
        raise SourceError(
            f"more than the {MAX_LAYERS} layers that are read at most", where=where, code=GapCode.TOO_LARGE
        )
    bindings = document.get("Bindings")
    named = frozenset(one for one in bindings if isinstance(one, str)) if isinstance(bindings, list) else frozenset()
    rows = [row for row in listed if isinstance(row, dict)]
    if not rows:
        names = [one for one in listed if isinstance(one, str)]
        return LayerInfo(tuple(EngineLayer(clean(one, _LONGEST), "", "", (), (), "", "") for one in names), named, True)
    return LayerInfo(tuple(_layer(row) for row in rows), named, names_only=False)


def _layer(row: Mapping[object, object]) -> EngineLayer:
    return EngineLayer(
        name=_text(row.get("Name")),
        kind=_text(row.get("LayerType")),
        parameter=_text(row.get("ParameterType")),
        inputs=tuple(_tensors(row.get("Inputs"))),
        outputs=tuple(_tensors(row.get("Outputs"))),
        origin=_text(row.get("Origin")),
        tactic=_text(row.get("TacticName")),
    )


def _tensors(listed: object) -> Iterator[Tensor]:
    for row in listed if isinstance(listed, list) else ():
        if isinstance(row, dict):
            form = row.get("Format/Datatype") or row.get("Datatype") or row.get("Format")
            size = row.get("Dimensions")
            numbers = [n for n in size if isinstance(n, int)] if isinstance(size, list) else []
            yield Tensor(_text(row.get("Name")), _text(form), tuple(numbers[:16]))


def _profile(rows: Sequence[Mapping[object, object]]) -> Iterator[tuple[str, float]]:
    """The first row holds the number of runs only."""
    for row in rows:
        time = _seconds(row.get("averageMs"))
        if "name" in row and time is not None:
            yield _text(row["name"]), time


def _runs(rows: Sequence[Mapping[object, object]]) -> RunTimes:
    """Older files have the start and end of each part, newer ones its duration."""
    compute: list[float] = []
    enqueue: list[float] = []
    copies: list[float] = []
    for row in rows:
        took = _seconds(row.get("computeMs")) or _between(row, "startComputeMs", "endComputeMs")
        waited = _between(row, "startEnqMs", "endEnqMs") or _seconds(row.get("enqueueMs"))
        compute += [took] if took is not None else []
        enqueue += [waited] if waited is not None else []
        ways = [_seconds(row.get(key)) for key in ("h2dMs", "d2hMs")]
        copies += [sum(way for way in ways if way is not None)] if any(way is not None for way in ways) else []
    return RunTimes(tuple(compute), tuple(enqueue), tuple(copies))


def _between(row: Mapping[object, object], start: str, end: str) -> float | None:
    begun, ended = _seconds(row.get(start)), _seconds(row.get(end))
    return None if begun is None or ended is None or ended < begun else ended - begun


def _measured(document: Mapping[object, object]) -> EngineMetadata:
    summary = _mapping(document.get("performance_summary"))
    ways = [_median(summary.get(f"{way} Latency")) for way in ("H2D", "D2H")]
    return EngineMetadata(
        device=_text(_mapping(document.get("device_information")).get("Selected Device")),
        enqueue=_median(summary.get("Enqueue Time")),
        compute=_median(summary.get("GPU Compute Time")),
        copies=None if None in ways else sum(way for way in ways if way is not None),
    )


def _median(value: object) -> float | None:
    """Of the figures min, max, mean, median, P99."""
    return _seconds(value[3]) if isinstance(value, list) and len(value) > 3 else None


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return clean(value, _LONGEST) if isinstance(value, str) else ""


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return value / 1000
