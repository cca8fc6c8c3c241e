"""What trtexec writes of an engine: layers (--exportLayerInfo), their times (--exportProfile), and each run's times.

The engine is a small convolutional network in one of three states, which only show in these files: sound, quantised
with conversions left between the layers, or with layers that fell back to FP32.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

SOUND, DANGLING, FALLEN_BACK = "sound", "dangling", "fallen back"

_FP32 = "Row major linear FP32"
_FP16 = "Thirty-two wide channel vectorized row major FP16 format"
_INT8 = "Thirty-two wide channel vectorized row major Int8 format"
_TYPES = {_FP32: ("f32", "Float"), _FP16: ("f16", "Half"), _INT8: ("i8", "Int8")}
_BATCH = 32
# Channels and side of the maps in each stage of two blocks.
_STAGES = ((64, 56), (128, 28), (256, 14), (512, 7))

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """A layer: its type, the formats of its input and output, its shape (channels, side), and its mean time in ms."""

    name: str
    kind: str
    source: str
    result: str
    shape: tuple[int, int]
    time: float
    origin: str = ""  # of a Reformat: QDQ or REFORMAT
    tactic: str = ""


def layers(rng: random.Random, state: str, severity: float) -> tuple[Row, ...]:
    """The engine's layers. Worse: more stages have conversions, or have fallen back."""
    hit = max(1, round(severity * len(_STAGES)))
    rows = [*_stem(rng, state)]
    for stage, shape in enumerate(_STAGES):
        troubled = state != SOUND and stage >= len(_STAGES) - hit
        for block in range(2):
            rows += _block(
                rng, state, f"layer{stage + 1}.{block}", shape, troubled=troubled, number=40 * stage + 17 * block
            )
    last = _INT8 if state == DANGLING else _FP16
    rows.append(Row("GlobalAveragePool_246", "TiledPooling", _FP16, _FP16, (512, 1), _near(rng, 0.007)))
    if last != _FP16:
        rows.append(Row("QuantizeLinear_250", "Reformat", _FP16, last, (512, 1), _near(rng, 0.005), "QDQ"))
    rows.append(_convolution(rng, "fc.weight + Gemm_257 + fc.bias", last, _FP32, (1000, 1), 0.011))
    return tuple(rows)


def _stem(rng: random.Random, state: str) -> Iterator[Row]:
    half = _INT8 if state == DANGLING else _FP16
    how, name = ("QDQ", "QuantizeLinear_2") if state == DANGLING else ("REFORMAT", _copy_node("Input", "conv1.weight"))
    yield Row(name, "Reformat", _FP32, half, (3, 224), _near(rng, 0.052), how)
    yield _convolution(rng, "conv1.weight + Conv_9 + Relu_11", half, _FP16, (64, 112), 0.12)
    yield Row("MaxPool_12", "TiledPooling", _FP16, _FP16, (64, 56), _near(rng, 0.046))


def _block(
    rng: random.Random, state: str, name: str, shape: tuple[int, int], *, troubled: bool, number: int
) -> Iterator[Row]:
    """Two convolutions and the sum with what went around them."""
    base = 0.034
    quantised = state != SOUND
    first, second = f"{name}.conv1.weight + Conv_{number + 22}", f"{name}.conv2.weight + Conv_{number + 34}"
    narrow = _INT8 if quantised else _FP16
    if quantised:
        # Where the network around is well quantised, this conversion is part of the layer before it.
        yield Row(f"QuantizeLinear_{number + 15}", "Reformat", _FP16, narrow, shape, _near(rng, 0.012), "QDQ")
    if not troubled:
        yield _convolution(rng, f"{first} + Relu_{number + 24}", narrow, narrow, shape, base)
        yield _convolution(rng, f"{second} + Add_{number + 36} + Relu_{number + 37}", narrow, _FP16, shape, base * 1.1)
    elif state == DANGLING:
        yield _convolution(rng, first, narrow, _FP16, shape, base)
        yield Row(f"PWN(Relu_{number + 24})", "PointWiseV2", _FP16, _FP16, shape, _near(rng, 0.016))
        yield Row(f"QuantizeLinear_{number + 27}", "Reformat", _FP16, narrow, shape, _near(rng, 0.021), "QDQ")
        yield _convolution(rng, second, narrow, _FP16, shape, base)
        for point in (f"Add_{number + 36}", f"PWN(Relu_{number + 37})"):
            yield Row(
                point, "ElementWise" if point[0] == "A" else "PointWiseV2", _FP16, _FP16, shape, _near(rng, 0.018)
            )
    else:
        yield Row(_copy_node("Input", first), "Reformat", narrow, _FP32, shape, _near(rng, 0.029), "REFORMAT")
        yield _convolution(rng, f"{first} + Relu_{number + 24}", _FP32, _FP32, shape, base)
        yield _convolution(rng, f"{second} + Add_{number + 36} + Relu_{number + 37}", _FP32, _FP32, shape, base)
        yield Row(_copy_node("Output", second), "Reformat", _FP32, _FP16, shape, _near(rng, 0.028), "REFORMAT")


def _copy_node(end: str, name: str) -> str:
    return f"Reformatting CopyNode for {end} Tensor 0 to {name}"


def _convolution(rng: random.Random, name: str, source: str, result: str, shape: tuple[int, int], time: float) -> Row:
    """A convolution; in FP32 it has no tensor cores and takes about four times as long."""
    narrow, wide = _TYPES[source][0], _TYPES[result][0]
    if narrow == "f32":
        tactic = f"ampere_scudnn_128x{rng.choice((64, 128))}_relu_interior_nn_v1"
        return Row(name, "CaskConvolution", source, result, shape, _near(rng, time * 4.1), tactic=tactic)
    tile = rng.choice(("64x128x64", "128x128x64", "256x64x64"))
    types = f"{narrow}{wide}_{narrow}f32_f32"
    tactic = f"sm80_xmma_fprop_implicit_gemm_{types}_nhwckrsc_nhwc_tilesize{tile}_stage4_tensor16x8x32"
    return Row(name, "CaskConvolution", source, result, shape, _near(rng, time), tactic=tactic)


def _near(rng: random.Random, time: float) -> float:
    return round(time * rng.uniform(0.9, 1.12), 6)


def layer_info(rows: tuple[Row, ...]) -> bytes:
    """As `--exportLayerInfo` writes it with detailed profiling verbosity."""
    tensors = ["input.1", *(f"onnx::Tensor_{125 + 11 * number}" for number in range(len(rows) - 1)), "422"]
    made = [_layer(row, tensors[number], tensors[number + 1]) for number, row in enumerate(rows)]
    return msgspec.json.format(msgspec.json.encode({"Layers": made, "Bindings": ["input.1", "422"]}), indent=1) + b"\n"


def _layer(row: Row, source: str, result: str) -> Document:
    channels, side = row.shape
    size = [_BATCH, channels, side, side]
    made: Document = {
        "Name": row.name,
        "LayerType": row.kind,
        "Inputs": [{"Name": source, "Location": "Device", "Dimensions": size, "Format/Datatype": row.source}],
        "Outputs": [{"Name": result, "Location": "Device", "Dimensions": size, "Format/Datatype": row.result}],
    }
    if row.kind == "Reformat":
        made |= {"ParameterType": "Reformat", "Origin": row.origin}
    elif row.kind == "CaskConvolution":
        made |= {
            "ParameterType": "Convolution",
            "Kernel": [3, 3] if side > 1 else [1, 1],
            "Stride": [1, 1],
            "OutMaps": channels,
            "Groups": 1,
            "Weights": {"Type": _TYPES[row.source][1], "Count": channels * channels * 9},
            "Activation": "RELU" if "Relu" in row.name else "NONE",
            "TacticName": row.tactic,
        }
    return made | {"TacticValue": f"0x{abs(hash_of(row.name + row.tactic)):016x}" if row.tactic else "0x" + "0" * 16}


def hash_of(text: str) -> int:
    """A number that is the same in every run, unlike Python's own hash of a text."""
    found = 0xCBF29CE484222325
    for byte in text.encode():
        found = (found ^ byte) * 0x100000001B3 % (1 << 64)
    return found


def profile(rng: random.Random, rows: tuple[Row, ...]) -> bytes:
    """As `--exportProfile` writes it: how often it ran, then a row for each layer, with its share in percent."""
    runs, whole = rng.randint(900, 2_400), sum(row.time for row in rows)
    made: list[Document] = [{"count": runs}]
    for row in rows:
        made.append(
            {
                "name": row.name,
                "timeMs": round(row.time * runs, 3),
                "averageMs": round(row.time, 6),
                "medianMs": round(row.time * rng.uniform(0.985, 1.0), 6),
                "percentage": round(100 * row.time / whole, 4),
            }
        )
    lines = [msgspec.json.encode(entry).decode() for entry in made]
    return ("[\n  " + "\n, ".join(lines) + "\n]\n").encode()


def times(rng: random.Random, rows: tuple[Row, ...], runs: int = 120) -> bytes:
    """As `--exportTimes` writes it: enqueue, copies and computing of each run, in ms from the start."""
    whole, clock = sum(row.time for row in rows), 3.6
    made = []
    for _ in range(runs):
        compute, enqueue = whole * rng.gauss(1, 0.006), rng.uniform(0.008, 0.03)
        begin, end = clock + 0.002, clock + 0.002 + compute
        made.append(
            {
                "startEnqMs": round(clock - 0.2, 5),
                "endEnqMs": round(clock - 0.2 + enqueue, 5),
                "startH2dMs": round(begin, 5),
                "endH2dMs": round(begin, 5),
                "startComputeMs": round(begin, 5),
                "endComputeMs": round(end, 5),
                "startD2hMs": round(end, 5),
                "endD2hMs": round(end, 5),
                "h2dMs": 0,
                "computeMs": round(compute, 5),
                "d2hMs": 0,
                "latencyMs": round(compute, 5),
            }
        )
        clock = end
    return msgspec.json.encode(made) + b"\n"
