"""The layers of an engine and their times as trtexec prints them in its log. Pure; times in seconds.

The profile (`--dumpProfile`) has the layer's name first up to TensorRT 8.4 and last since. The layer information
(`--dumpLayerInfo`, and the log of a verbose build) has one line for each layer, or only names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latdoctor.collectors.tensorrt.file_formats import MAX_LAYERS, EngineLayer, LayerInfo, LayerProfile, Tensor
from latdoctor.sanitize import clean

_STAMP = re.compile(r"^\s*(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?(?:\[[VIWE]\] )?(?:\[TRT\] )?")
_PROFILE = re.compile(r"=== Profile \(\d{1,9} iterations ?\) ===")
_NAME_FIRST = re.compile(r"\s*(.{1,2000}?)\s+(\d+\.\d+)\s+(\d+\.\d+)(?:\s+(\d+\.\d+))?\s+(\d+\.\d+)\s*$")
_NAME_LAST = re.compile(r"\s*(\d+\.\d+)\s+(\d+\.\d+)(?:\s+(\d+\.\d+))?\s+(\d+\.\d+)\s{2,}(\S.{0,2000})$")
_LAYERS = re.compile(r"(?:Engine Layer Information:|^Layers:)\s*$")
_BINDINGS = re.compile(r"^Bindings:\s*$")
_LAYER = re.compile(r"Layer\((\w{1,60})\): (.{1,2000}?), Tactic: [^,]{1,60}, (.{0,4000}?) -> (.{0,4000})$")
# `conv1_out[Float(1,64,112,112)]` and `conv1_out (Half[1,64,112,112])`
_TENSOR = re.compile(r"(?:^|, )([^,\[\(]{1,400}?)\s?[\[\(](\w{2,12})[\(\[]([-\d,:]{0,200})")
_NAMED = 300
_LONGEST = 10_000  # characters of a line
_TOTAL = "Total"


def plain_lines(text: str) -> list[str]:
    """The lines without trtexec's time and level; of a longer line its beginning."""
    return [_STAMP.sub("", line[:_LONGEST], count=1) for line in text.splitlines()]


def profile(lines: Sequence[str]) -> LayerProfile | None:
    """The mean time of each layer, of the last profile that is printed; None without one."""
    begins = [number for number, line in enumerate(lines) if _PROFILE.search(line)]
    times = tuple(_profile_rows(lines[begins[-1] + 1 :])) if begins else ()
    return LayerProfile(times) if times else None


def _profile_rows(lines: Sequence[str]) -> Iterator[tuple[str, float]]:
    for line in lines[: MAX_LAYERS + 2]:
        if found := _NAME_LAST.match(line):
            name, mean = found[5], found[2]
        elif found := _NAME_FIRST.match(line):
            name, mean = found[1], found[3]
        elif line.strip() and "Time" not in line:
            return
        else:
            continue
        if name.strip() == _TOTAL:
            return
        yield clean(name.strip(), _NAMED), float(mean[:20]) / 1000


def layer_information(lines: Sequence[str]) -> LayerInfo | None:
    """The layers of the last block of layer information; None without one."""
    begins = [number for number, line in enumerate(lines) if _LAYERS.search(line)]
    if not begins:
        return None
    detailed: list[EngineLayer] = []
    names: list[str] = []
    bindings: list[str] = []
    in_bindings = False
    for line in lines[begins[-1] + 1 :][: 2 * MAX_LAYERS]:
        if _BINDINGS.match(line):
            in_bindings = True
        elif in_bindings and line.strip() and not line.startswith(("===", "[")):
            bindings.append(clean(line.strip(), _NAMED))
        elif in_bindings or line.startswith("==="):
            break
        elif found := _LAYER.search(line):
            detailed.append(_layer(found))
        elif line.strip() and not detailed:
            names.append(clean(line.strip(), _NAMED))
    if detailed:
        return LayerInfo(tuple(detailed[:MAX_LAYERS]), frozenset(bindings[:1000]), names_only=False)
    listed = tuple(EngineLayer(name, "", "", (), (), "", "") for name in names[:MAX_LAYERS])
    return LayerInfo(listed, frozenset(bindings[:1000]), names_only=True) if listed and bindings else None


def _layer(found: re.Match[str]) -> EngineLayer:
    """The tactic is only a number here, which says nothing of tensor cores."""
    kind, name, inputs, outputs = found.groups()
    origin = "QDQ" if kind == "Reformat" and re.search(r"quantize", name, re.IGNORECASE) else ""
    return EngineLayer(clean(name, _NAMED), kind, "", _tensors(inputs), _tensors(outputs), origin, "")


def _tensors(text: str) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(clean(name.strip(), _NAMED), form, tuple(int(n[:9]) for n in re.findall(r"\d+", size))[:16])
        for name, form, size in _TENSOR.findall(text)[:64]
    )
