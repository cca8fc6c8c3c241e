"""Files of small engines written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from latdoctor.collectors.tensorrt import COLLECTOR
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

INT8, FP16, FP32 = (
    "Thirty-two wide channel vectorized row major Int8 format",
    "Row major linear FP16 format",
    "Row major linear FP32",
)
Layer = Mapping[str, Any]


def tensor(form: str, name: str = "t", size: Sequence[int] = (8, 64, 16, 16)) -> dict[str, Any]:
    return {"Name": name, "Dimensions": list(size), "Format/Datatype": form}


def layer(name: str, kind: str, source: str = FP16, result: str = FP16, **more: Any) -> dict[str, Any]:
    return {"Name": name, "LayerType": kind, "Inputs": [tensor(source)], "Outputs": [tensor(result)], **more}


def graph(*layers: Any) -> bytes:
    return json.dumps({"Layers": list(layers), "Bindings": ["input"]}).encode()


def profile(**times: float) -> bytes:
    """Mean milliseconds by layer."""
    whole = sum(times.values()) or 1
    rows = [{"name": name, "averageMs": ms, "percentage": 100 * ms / whole} for name, ms in times.items()]
    return json.dumps([{"count": 10}, *rows]).encode()


def parsed(*contents: bytes) -> Evidence:
    made = [Artifact(f"tensorrt/a.{n}", "tensorrt", "a", f"a.{n}", 1.0, one) for n, one in enumerate(contents)]
    return COLLECTOR.parse(made)
