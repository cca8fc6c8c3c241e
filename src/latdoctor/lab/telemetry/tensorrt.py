"""The files of trtexec for an engine: layers (--exportLayerInfo), their times (--exportProfile), times per run.

The engine is a small convolutional network in one of three states, which only show in these files: sound, quantised
with conversions left between the layers, or with layers that fell back to FP32.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from latdoctor.lab.telemetry.gpu_load import GpuModel


class EngineState(StrEnum):
    """DANGLING: conversions are left between the layers; FALLEN_BACK: layers run in FP32."""

    SOUND = "sound"
    DANGLING = "dangling"
    FALLEN_BACK = "fallen back"


_FP32 = "Row major linear FP32"
_FP16 = "Thirty-two wide channel vectorized row major FP16 format"
_INT8 = "Thirty-two wide channel vectorized row major Int8 format"
_TYPES = {_FP32: ("f32", "Float"), _FP16: ("f16", "Half"), _INT8: ("i8", "Int8")}
_BATCH = 32
# Channels and side of the maps in each stage of two blocks.
_STAGES = ((64, 56), (128, 28), (256, 14), (512, 7))

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """A layer: its type, the formats of its input and output, its shape (channels, side), and its mean time in ms."""

    name: str
    kind: str
    source: str
    result: str
    shape: tuple[int, int]
    time: float
    origin: str = ""  # of a Reformat: QDQ or REFORMAT
    tactic: str = ""


def layers(rng: random.Random, state: EngineState, severity: float) -> tuple[EngineLayer, ...]:
    """The engine's layers. Worse: more stages have conversions, or have fallen back."""
    hit = max(1, round(severity * len(_STAGES)))
    rows = [*_stem(rng, state)]
    for stage, shape in enumerate(_STAGES):
        troubled = state is not EngineState.SOUND and stage >= len(_STAGES) - hit
        for block in range(2):
            rows += _block(
                rng, state, f"layer{stage + 1}.{block}", shape, troubled=troubled, number=40 * stage + 17 * block
            )
    last = _INT8 if state is EngineState.DANGLING else _FP16
    rows.append(EngineLayer("GlobalAveragePool_246", "TiledPooling", _FP16, _FP16, (512, 1), _near(rng, 0.007)))
    if last != _FP16:
        rows.append(EngineLayer("QuantizeLinear_250", "Reformat", _FP16, last, (512, 1), _near(rng, 0.005), "QDQ"))
    rows.append(_convolution(rng, "fc.weight + Gemm_257 + fc.bias", last, _FP32, (1000, 1), 0.011))
    return tuple(rows)


def _stem(rng: random.Random, state: EngineState) -> Iterator[EngineLayer]:
    dangling = state is EngineState.DANGLING
    half = _INT8 if dangling else _FP16
    how, name = ("QDQ", "QuantizeLinear_2") if dangling else ("REFORMAT", _copy_node("Input", "conv1.weight"))
    yield EngineLayer(name, "Reformat", _FP32, half, (3, 224), _near(rng, 0.052), how)
    yield _convolution(rng, "conv1.weight + Conv_9 + Relu_11", half, _FP16, (64, 112), 0.12)
    yield EngineLayer("MaxPool_12", "TiledPooling", _FP16, _FP16, (64, 56), _near(rng, 0.046))


def _block(
    rng: random.Random, state: EngineState, name: str, shape: tuple[int, int], *, troubled: bool, number: int
) -> Iterator[EngineLayer]:
    """Two convolutions and the sum with what went around them."""
    base = 0.034
    quantised = state is not EngineState.SOUND
    first, second = f"{name}.conv1.weight + Conv_{number + 22}", f"{name}.conv2.weight + Conv_{number + 34}"
    narrow = _INT8 if quantised else _FP16
    if quantised:
        # Where the network around is well quantised, this conversion is part of the layer before it.
        yield EngineLayer(f"QuantizeLinear_{number + 15}", "Reformat", _FP16, narrow, shape, _near(rng, 0.012), "QDQ")
    if not troubled:
        yield _convolution(rng, f"{first} + Relu_{number + 24}", narrow, narrow, shape, base)
        yield _convolution(rng, f"{second} + Add_{number + 36} + Relu_{number + 37}", narrow, _FP16, shape, base * 1.1)
    elif state is EngineState.DANGLING:
        yield _convolution(rng, first, narrow, _FP16, shape, base)
        yield EngineLayer(f"PWN(Relu_{number + 24})", "PointWiseV2", _FP16, _FP16, shape, _near(rng, 0.016))
        yield EngineLayer(f"QuantizeLinear_{number + 27}", "Reformat", _FP16, narrow, shape, _near(rng, 0.021), "QDQ")
        yield _convolution(rng, second, narrow, _FP16, shape, base)
        for point in (f"Add_{number + 36}", f"PWN(Relu_{number + 37})"):
            yield EngineLayer(
                point, "ElementWise" if point[0] == "A" else "PointWiseV2", _FP16, _FP16, shape, _near(rng, 0.018)
            )
    else:
        yield EngineLayer(_copy_node("Input", first), "Reformat", narrow, _FP32, shape, _near(rng, 0.029), "REFORMAT")
        yield _convolution(rng, f"{first} + Relu_{number + 24}", _FP32, _FP32, shape, base)
        yield _convolution(rng, f"{second} + Add_{number + 36} + Relu_{number + 37}", _FP32, _FP32, shape, base)
        yield EngineLayer(_copy_node("Output", second), "Reformat", _FP32, _FP16, shape, _near(rng, 0.028), "REFORMAT")


def _copy_node(end: str, name: str) -> str:
    return f"Reformatting CopyNode for {end} Tensor 0 to {name}"


def _convolution(
    rng: random.Random, name: str, source: str, result: str, shape: tuple[int, int], time: float
) -> EngineLayer:
    """A convolution; in FP32 it has no tensor cores and takes about four times as long."""
    narrow, wide = _TYPES[source][0], _TYPES[result][0]
    if narrow == "f32":
        tactic = f"ampere_scudnn_128x{rng.choice((64, 128))}_relu_interior_nn_v1"
        return EngineLayer(name, "CaskConvolution", source, result, shape, _near(rng, time * 4.1), tactic=tactic)
    tile = rng.choice(("64x128x64", "128x128x64", "256x64x64"))
    types = f"{narrow}{wide}_{narrow}f32_f32"
    tactic = f"sm80_xmma_fprop_implicit_gemm_{types}_nhwckrsc_nhwc_tilesize{tile}_stage4_tensor16x8x32"
    return EngineLayer(name, "CaskConvolution", source, result, shape, _near(rng, time), tactic=tactic)


def _near(rng: random.Random, time: float) -> float:
    return round(time * rng.uniform(0.9, 1.12), 6)


def layer_info(rows: tuple[EngineLayer, ...]) -> bytes:
    """As `--exportLayerInfo` writes it with detailed profiling verbosity."""
    tensors = ["input.1", *(f"onnx::Tensor_{125 + 11 * number}" for number in range(len(rows) - 1)), "422"]
    made = [_layer(row, tensors[number], tensors[number + 1]) for number, row in enumerate(rows)]
    return msgspec.json.format(msgspec.json.encode({"Layers": made, "Bindings": ["input.1", "422"]}), indent=1) + b"\n"


def _layer(row: EngineLayer, source: str, result: str) -> Document:
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


def profile(rng: random.Random, rows: tuple[EngineLayer, ...]) -> bytes:
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


def times(rng: random.Random, rows: tuple[EngineLayer, ...], runs: int = 120) -> bytes:
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


_VERSION = "v101300"


def build_log(
    rng: random.Random, rows: tuple[EngineLayer, ...], state: EngineState, board: GpuModel, now: float
) -> bytes:
    """The whole log; the build ended at `now`, unix seconds."""
    precision = "--fp16" if state is EngineState.SOUND else "--fp16 --int8"
    command = f"trtexec --onnx=resnet.onnx {precision} --shapes=input.1:32x3x224x224 --verbose --saveEngine=resnet.plan"
    lines = [f"&&&& RUNNING TensorRT.trtexec [TensorRT {_VERSION}] # {command}"]
    entries = [*_options(state), *_device(board), *_builder(rng, rows, state), *_summary(rng, rows)]
    begun = now - rng.uniform(60, 240)
    for number, (level, text) in enumerate(entries):
        stamp = datetime.fromtimestamp(begun + (now - begun) * number / len(entries), UTC)
        lines.append(f"[{stamp:%m/%d/%Y-%H:%M:%S}] [{level}] {text}")
    lines.append(f"&&&& PASSED TensorRT.trtexec [TensorRT {_VERSION}] # {command}")
    return ("\n".join(lines) + "\n").encode()


def _options(state: EngineState) -> Iterator[tuple[str, str]]:
    yield "I", "=== Model Options ==="
    yield "I", "Format: ONNX"
    yield "I", "Model: resnet.onnx"
    yield "I", "=== Build Options ==="
    yield "I", "Memory Pools: workspace: default, dlaSRAM: default, dlaLocalDRAM: default, dlaGlobalDRAM: default"
    yield "I", f"Precision: {'FP32+FP16' if state is EngineState.SOUND else 'FP32+FP16+INT8'}"
    yield "I", "LayerPrecisions:"
    yield "I", "Calibration: Dynamic" if state is not EngineState.SOUND else "Calibration:"
    yield "I", "=== Inference Options ==="
    yield "I", "Input inference shape : input.1=32x3x224x224"
    yield "I", "CUDA Graph: Enabled"


def _device(board: GpuModel) -> Iterator[tuple[str, str]]:
    yield "I", "=== Device Information ==="
    yield "I", f"Selected Device: {board.name}"
    yield "I", f"Device Global Memory: {board.memory} MiB"
    yield "I", f"Application Compute Clock Rate: {board.clock_max / 1000:.3f} GHz"


def _builder(rng: random.Random, rows: tuple[EngineLayer, ...], state: EngineState) -> Iterator[tuple[str, str]]:
    convolutions = [row for row in rows if row.kind == "CaskConvolution"]
    copies = [row for row in rows if row.kind == "Reformat"]
    yield "V", "[TRT] Original: 114 layers"
    yield "V", "[TRT] After dead-layer removal: 114 layers"
    for row in convolutions:
        parts = row.name.split(" + ")
        if len(parts) > 2:
            yield "V", f"[TRT] ConvReluFusion: Fusing {parts[1]} with {parts[-1]}"
    yield "V", f"[TRT] After vertical fusions: {len(rows) + rng.randint(0, 4)} layers"
    for row in convolutions:
        if state is EngineState.FALLEN_BACK and row.source.endswith("FP32"):
            tensor = f"onnx::Conv_{rng.randint(190, 480)}"
            yield (
                "V",
                f"[TRT] Rejecting some int8 implementation of layer {row.name} due to missing int8 scales for tensor "
                f"{tensor} at input index 0",
            )
            yield (
                "W",
                f"[TRT] No implementation of layer {row.name} obeys the requested constraints in strict mode. No "
                "conforming implementation was found; the requested precision is ignored, using the fastest one.",
            )
        yield "V", f"[TRT] {row.name} ({row.kind}) Set Tactic Name: {row.tactic}"
    if state is EngineState.DANGLING:
        yield (
            "W",
            f"[TRT] No implementation obeys reformatting-free rules, at least {len(copies)} reformatting nodes are "
            "needed, now picking the fastest path instead.",
        )
    for row in copies:
        yield "V", f"[TRT] Adding reformat layer: {row.name} from {row.source} to {row.result}"
    yield "I", f"[TRT] Total Device Persistent Memory: {rng.randint(0, 9) * 512}"
    yield "I", f"[TRT] Engine generation completed in {rng.uniform(40, 180):.3f} seconds."


def _summary(rng: random.Random, rows: tuple[EngineLayer, ...]) -> Iterator[tuple[str, str]]:
    mean = sum(row.time for row in rows)
    low, high = mean * 0.99, mean * rng.uniform(1.02, 1.06)
    spread = ", ".join(f"percentile({p}%) = {mean * (1 + p / 9_000):.5g} ms" for p in (90, 95, 99))
    figures = f"min = {low:.5g} ms, max = {high:.5g} ms, mean = {mean:.5g} ms, median = {mean:.5g} ms, {spread}"
    yield "I", "=== Performance summary ==="
    yield "I", f"Throughput: {1000 / mean:.2f} qps"
    yield "I", f"Latency: {figures}"
    yield "I", "Enqueue Time: min = 0.0066 ms, max = 0.0171 ms, mean = 0.0072 ms, median = 0.0071 ms"
    yield "I", f"GPU Compute Time: {figures}"
    yield "I", "Total Host Walltime: 3.00181 s"
