"""The TensorRT files: their three forms agree with each other, and the trouble shows where it should."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from latdoctor.lab.telemetry.generate import generate_telemetry

FOLDER = "tensorrt/resnet.plan"


def files(cause: str, seed: int) -> dict[str, Any]:
    raw = generate_telemetry(cause, seed, 0.8).raw
    found = {form: json.loads(raw[f"{FOLDER}.{form}.json"].content) for form in ("graph", "profile", "timing")}
    return {**found, "log": raw[f"{FOLDER}.build.log"].content.decode()}


def data_type(tensors: list[dict[str, str]]) -> str:
    return next(name for name in ("FP32", "FP16", "Int8") if name in tensors[0]["Format/Datatype"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cause", ["healthy", "framework.fusion.missed", "framework.precision.fallback"])
def test_layers_profile_and_times_are_of_one_engine(cause: str, seed: int) -> None:
    found = files(cause, seed)
    head, *rows = found["profile"]
    assert head["count"] > 0
    assert [row["name"] for row in rows] == [layer["Name"] for layer in found["graph"]["Layers"]]
    assert sum(row["percentage"] for row in rows) == pytest.approx(100, abs=0.01)
    whole = sum(row["averageMs"] for row in rows)
    runs = [run["computeMs"] for run in found["timing"]]
    assert sum(runs) / len(runs) == pytest.approx(whole, rel=0.01)
    assert found["log"].startswith("&&&& RUNNING TensorRT.trtexec")
    assert found["log"].rstrip().splitlines()[-1].startswith("&&&& PASSED TensorRT.trtexec")


@pytest.mark.parametrize("seed", range(3))
def test_the_formats_of_neighbours_fit(seed: int) -> None:
    for cause in ("healthy", "framework.fusion.missed", "framework.precision.fallback"):
        layers = files(cause, seed)["graph"]["Layers"]
        for layer, following in pairwise(layers):
            assert layer["Outputs"][0]["Name"] == following["Inputs"][0]["Name"]
            assert data_type(layer["Outputs"]) == data_type(following["Inputs"]), following["Name"]


@pytest.mark.parametrize("seed", range(3))
def test_conversions_between_layers_cost_a_good_share(seed: int) -> None:
    def share(cause: str) -> float:
        found = files(cause, seed)
        conversions = {
            layer["Name"]
            for layer in found["graph"]["Layers"]
            if layer["LayerType"] == "Reformat" and layer["Origin"] == "QDQ"
        }
        return sum(float(row["percentage"]) for row in found["profile"][1:] if row["name"] in conversions)

    assert share("framework.fusion.missed") > 15
    assert share("healthy") == 0


@pytest.mark.parametrize("seed", range(3))
def test_layers_that_fell_back_compute_in_fp32_and_the_log_says_why(seed: int) -> None:
    def wide(cause: str) -> list[dict[str, Any]]:
        return [
            layer
            for layer in files(cause, seed)["graph"]["Layers"]
            if layer["LayerType"] == "CaskConvolution" and data_type(layer["Inputs"]) == "FP32"
        ]

    fallen = wide("framework.precision.fallback")
    assert len(fallen) >= 4
    assert all("xmma" not in layer["TacticName"] for layer in fallen), "FP32 has no tensor cores"
    assert "due to missing int8 scales" in files("framework.precision.fallback", seed)["log"]
    assert wide("healthy") == wide("framework.fusion.missed") == []
