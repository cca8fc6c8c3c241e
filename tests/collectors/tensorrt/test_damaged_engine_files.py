"""Any bytes give a result or a typed error: JSON of any form, logs of any length, within bounded time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.tensorrt import build_log, file_formats
from latdoctor.errors import SourceError
from tests.collectors.tensorrt.synthetic_engines import FP16, graph, layer, parsed, tensor

DEEP = 200_000


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"[1, 2]", b"[" * DEEP, b'{"Layers":' * DEEP, b'{"Layers": 3}',
        b"\xff\xfe\x00", b'{"Layers": [' + b"[" * DEEP, b"[{}]", b'[{"averageMs": 1}', b"\x00" * 1000,
        b'{"Layers": ["\xff"]}',
    ],
)  # fmt: skip
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(SourceError):
        parsed(content)


def test_engines_that_go_round_in_a_circle_end() -> None:
    """Tensors that feed the layers they come from: nothing here follows them."""
    ring = [
        {**layer(str(n), "CaskConvolution"), "Inputs": [tensor(FP16, f"t{n}")], "Outputs": [tensor(FP16, f"t{1 - n}")]}
        for n in (0, 1)
    ]
    assert parsed(graph(*ring)).readings


def test_files_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_formats, "MAX_LAYERS", 5)
    with pytest.raises(SourceError, match="more than the 5 layers"):
        parsed(graph(*[layer("a", "Reformat")] * 6))
    monkeypatch.setattr(file_formats, "MAX_BYTES", 5)
    with pytest.raises(SourceError, match="read at most"):
        parsed(graph(layer("a", "Reformat")))


HOSTILE_LINES = (
    "Selected Device: " + " " * 900,
    "Input build shape (profile 0): " + "=1x" * 300,
    "Rejecting some x implementation of layer " * 20,
    "GPU Compute Time: " + "median = " * 90,
    "] GPU Compute Time: median = ..1..1 ms",
    "] Enqueue Time: median = " + "9" * 800 + " ms",
    "at least " + "9" * 900 + " reformatting nodes",
    "No implementation obeys reformatting-free rules, at least " + "9" * 900 + " reformatting nodes",
    "Input inference shape : x=" + "9" * 900,
    "Input build shape (profile 0): x=" + "9" * 300 + "+" + "9" * 300 + "+" + "9" * 300,
)


@pytest.mark.parametrize("line", HOSTILE_LINES, ids=range(len(HOSTILE_LINES)))
def test_hostile_lines_cost_little(line: str) -> None:
    """Some thousand such lines are read in well under the time that a test may take."""
    build_log.read((f"[V] [TRT] TensorRT {line}\n" * 2000).encode())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
keys = st.sampled_from(
    ["Name", "LayerType", "Inputs", "Outputs", "Origin", "TacticName", "Format/Datatype", "Dimensions"]
)
layers = st.lists(st.dictionaries(keys, values, max_size=8) | values, max_size=5)
rows = st.lists(
    st.dictionaries(st.sampled_from(["name", "averageMs", "count", "computeMs", "startEnqMs", "endEnqMs"]), values),
    max_size=5,
)
KNOWN = ("performance_summary", "device_information", "build_options", "inference_options", "Layers", "Bindings")


@given(layers, rows, st.dictionaries(st.sampled_from(KNOWN), values, max_size=4))
def test_any_values_give_a_result_or_an_error(made: list[object], told: list[object], facts: dict[str, object]) -> None:
    contents = [json.dumps({"Layers": made, "Bindings": told}), json.dumps(told), json.dumps(facts)]
    try:
        parsed(*(one.encode() for one in contents))
    except SourceError:
        return


words = st.sampled_from(
    [
        "[V] [TRT]", "Precision: ", "Selected Device: ", "median = ", "GPU Compute Time: ", "1.5 ms",
        "Input build shape", "x=1x2+", "\n", "\r",
        "exceed min ~ max range", "Rejecting some int8 implementation of layer ",
        "due to missing scales", "\x00", "é", "9" * 30,
    ]
)  # fmt: skip


@given(st.lists(words, max_size=40))
def test_any_lines_give_a_result(parts: list[str]) -> None:
    assert parsed(("TensorRT " + "".join(parts)).encode()).gaps


@given(st.binary(max_size=300))
def test_any_bytes_give_a_result_or_an_error(content: bytes) -> None:
    for head in (b"", b"[TRT] ", b"[", b"{"):
        try:
            parsed(head + content)
        except SourceError:
            continue
