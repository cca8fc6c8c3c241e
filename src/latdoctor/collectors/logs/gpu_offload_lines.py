"""How much of a model llama.cpp and ollama put on a GPU, and that ollama found none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.line_prefix import LogLine

NO_GPU, LAYERS, ALL_LAYERS, SHARE = (
    "log.no_gpu_found", "offload.layers", "offload.layers_total", "offload.layer_share",
)  # fmt: skip
SIGNALS = (NO_GPU, LAYERS, ALL_LAYERS, SHARE)
_OFFLOADED = re.compile(r"offloaded (\d{1,4})/(\d{1,4}) layers to GPU")
_OLLAMA = re.compile(r"msg=\"?offload.{0,80}?\blayers\.model=(\d{1,4}) layers\.offload=(\d{1,4})")
_NONE = re.compile(
    r"no compatible GPUs were discovered|msg=\"inference compute\" id=(?:0|cpu)? ?library=cpu|no GPU detected"
    r"|no usable GPU found|warning: no usable GPU|compiled without (?:GPU|CUDA) support",
    re.I,
)


def find(line: LogLine) -> Iterator[Found]:
    """The layers that a line names, or that no GPU was found."""
    message = line.message
    if found := _OFFLOADED.search(message):
        yield from _layers(int(found[1]), int(found[2]))
    elif found := _OLLAMA.search(message):
        yield from _layers(int(found[2]), int(found[1]))
    elif _NONE.search(message):
        yield Found(NO_GPU)


def _layers(on_gpu: int, of: int) -> Iterator[Found]:
    if 0 < of >= on_gpu:
        yield Found(LAYERS, value=float(on_gpu))
        yield Found(ALL_LAYERS, value=float(of))
        yield Found(SHARE, value=on_gpu / of)


KIND = LineKind(
    "gpu-offload",
    (
        rb"layers to GPU|layers\.offload=",
        rb"compatible GPUs|inference compute|usable GPU|no GPU detected|compiled without",
    ),
    lambda artifact: EventLines(artifact, find),
)
