"""One engine from all files that tell of it, as figures. Pure; times in seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from latdoctor.collect.tensorrt import layers as judged
from latdoctor.collect.tensorrt.build_log import Log
from latdoctor.collect.tensorrt.documents import Document, Facts, Layer, Layers, Profile, Runs
from latdoctor.collect.tensorrt.layers import Share

# What is counted among the layers, by the part of the signal's name.
KINDS: Mapping[str, Callable[[Layer], bool]] = {
    "reformat": judged.is_reformat,
    "converting": judged.is_converting,
    "quantising": judged.is_unfused_quantisation,
    "float_out": judged.gives_float,
    "pointwise": judged.is_pointwise,
    "fp32": judged.is_wide,
    "no_tensor_cores": judged.is_without_tensor_cores,
}
# Of a profile of this engine nearly all layers are found by name; of another one hardly any.
_SAME_ENGINE = 0.9


@dataclass(slots=True)
class Files:
    """What was read, each with the name of its artifact."""

    layers: tuple[Layers, str] | None = None
    profile: tuple[Profile, str] | None = None
    runs: tuple[Runs, str] | None = None
    facts: list[tuple[Facts, str]] = field(default_factory=list)
    logs: list[tuple[Log, str]] = field(default_factory=list)

    def add(self, found: Document | Log, artifact: str) -> None:
        if isinstance(found, Layers):
            self.layers = (found, artifact)
        elif isinstance(found, Profile):
            self.profile = (found, artifact)
        elif isinstance(found, Runs):
            self.runs = (found, artifact)
        elif isinstance(found, Facts):
            self.facts.append((found, artifact))
        else:
            self.logs.append((found, artifact))


@dataclass(frozen=True, slots=True)
class Told:
    """A text or a time with the artifact that told it."""

    value: str | float
    artifact: str
    place: str


def matched_times(files: Files) -> tuple[Sequence[float] | None, str]:
    """The time of each layer, or None and why not."""
    if files.layers is None or files.layers[0].names_only:
        return None, "no detailed layer information"
    if files.profile is None:
        return None, "no profile of the layers' times"
    waiting: dict[str, list[float]] = defaultdict(list)
    for name, time in reversed(files.profile[0].times):
        waiting[name].append(time)
    listed = files.layers[0].listed
    times = [waiting[layer.name].pop() if waiting.get(layer.name) else -1.0 for layer in listed]
    whole = sum(time for _, time in files.profile[0].times)
    if whole <= 0 or sum(time for time in times if time > 0) < _SAME_ENGINE * whole:
        return None, "the profile is of another engine than the layer information"
    return [max(0.0, time) for time in times], ""


def shares(files: Files, times: Sequence[float] | None) -> Mapping[str, Share]:
    """Of each of KINDS the layers; nothing without detailed layer information."""
    if files.layers is None or files.layers[0].names_only:
        return {}
    return {name: judged.share(files.layers[0].listed, times, wanted) for name, wanted in KINDS.items()}


def narrow_was_meant(files: Files, bits: int | None) -> bool | None:
    """May the engine compute in less than FP32? By what the build was allowed, else by what it does; None: unknown."""
    allowed = precision(files)
    if allowed is not None and isinstance(allowed.value, str):
        return any(kind in allowed.value for kind in ("16", "8", "4"))
    return None if bits is None else bits < 32 or None


def precision(files: Files) -> Told | None:
    """What the build was allowed: `FP32+FP16+INT8`."""
    for facts, artifact in files.facts:
        if facts.precision:
            return Told(facts.precision, artifact, "build options")
    for log, artifact in files.logs:
        if log.precision:
            return Told(log.precision, artifact, "build options")
    return None


def device(files: Files) -> Told | None:
    for facts, artifact in files.facts:
        if facts.device:
            return Told(facts.device, artifact, "device")
    for log, artifact in files.logs:
        if log.device:
            return Told(log.device, artifact, "Selected Device")
    return None


def timing(files: Files) -> Mapping[str, Told]:
    """Medians of `compute`, `enqueue` and `copies`: of the runs one by one, else as a summary states them."""
    found: dict[str, Told] = {}
    if files.runs is not None:
        runs, artifact = files.runs
        for name, values in (("compute", runs.compute), ("enqueue", runs.enqueue), ("copies", runs.copies)):
            if values:
                found[name] = Told(median(values), artifact, f"median of {len(values)} runs")
    for facts, artifact in files.facts:
        for name, value in (("compute", facts.compute), ("enqueue", facts.enqueue), ("copies", facts.copies)):
            if value is not None:
                found.setdefault(name, Told(value, artifact, "performance summary"))
    for log, artifact in files.logs:
        for name, title in (("compute", "GPU Compute Time"), ("enqueue", "Enqueue Time")):
            if title in log.figures:
                found.setdefault(name, Told(log.figures[title], artifact, "performance summary"))
    return found


def first_input(files: Files) -> str:
    """The shape of the first binding that some layer reads: `32x3x224x224`."""
    if files.layers is None:
        return ""
    found, _ = files.layers
    given = (tensor for layer in found.listed for tensor in layer.inputs if tensor.name in found.bindings)
    return next(("x".join(map(str, tensor.size)) for tensor in given if tensor.size), "")
