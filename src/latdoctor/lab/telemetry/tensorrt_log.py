"""The log of a verbose trtexec build: what was asked for, what the builder chose and why, and its figures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

from latdoctor.lab.telemetry.boards import Board
from latdoctor.lab.telemetry.tensorrt import DANGLING, FALLEN_BACK, SOUND, Row

_VERSION = "v101300"


def build_log(rng: random.Random, rows: tuple[Row, ...], state: str, board: Board, now: float) -> bytes:
    """The whole log; the build ended at `now`, unix seconds."""
    precision = "--fp16" if state == SOUND else "--fp16 --int8"
    command = f"trtexec --onnx=resnet.onnx {precision} --shapes=input.1:32x3x224x224 --verbose --saveEngine=resnet.plan"
    lines = [f"&&&& RUNNING TensorRT.trtexec [TensorRT {_VERSION}] # {command}"]
    said = [*_options(state), *_device(board), *_builder(rng, rows, state), *_summary(rng, rows)]
    begun = now - rng.uniform(60, 240)
    for number, (level, text) in enumerate(said):
        stamp = datetime.fromtimestamp(begun + (now - begun) * number / len(said), UTC)
        lines.append(f"[{stamp:%m/%d/%Y-%H:%M:%S}] [{level}] {text}")
    lines.append(f"&&&& PASSED TensorRT.trtexec [TensorRT {_VERSION}] # {command}")
    return ("\n".join(lines) + "\n").encode()


def _options(state: str) -> Iterator[tuple[str, str]]:
    yield "I", "=== Model Options ==="
    yield "I", "Format: ONNX"
    yield "I", "Model: resnet.onnx"
    yield "I", "=== Build Options ==="
    yield "I", "Memory Pools: workspace: default, dlaSRAM: default, dlaLocalDRAM: default, dlaGlobalDRAM: default"
    yield "I", f"Precision: {'FP32+FP16' if state == SOUND else 'FP32+FP16+INT8'}"
    yield "I", "LayerPrecisions:"
    yield "I", "Calibration: Dynamic" if state != SOUND else "Calibration:"
    yield "I", "=== Inference Options ==="
    yield "I", "Input inference shape : input.1=32x3x224x224"
    yield "I", "CUDA Graph: Enabled"


def _device(board: Board) -> Iterator[tuple[str, str]]:
    yield "I", "=== Device Information ==="
    yield "I", f"Selected Device: {board.name}"
    yield "I", f"Device Global Memory: {board.memory} MiB"
    yield "I", f"Application Compute Clock Rate: {board.clock_max / 1000:.3f} GHz"


def _builder(rng: random.Random, rows: tuple[Row, ...], state: str) -> Iterator[tuple[str, str]]:
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
        if state == FALLEN_BACK and row.source.endswith("FP32"):
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
    if state == DANGLING:
        yield (
            "W",
            f"[TRT] No implementation obeys reformatting-free rules, at least {len(copies)} reformatting nodes are "
            "needed, now picking the fastest path instead.",
        )
    for row in copies:
        yield "V", f"[TRT] Adding reformat layer: {row.name} from {row.source} to {row.result}"
    yield "I", f"[TRT] Total Device Persistent Memory: {rng.randint(0, 9) * 512}"
    yield "I", f"[TRT] Engine generation completed in {rng.uniform(40, 180):.3f} seconds."


def _summary(rng: random.Random, rows: tuple[Row, ...]) -> Iterator[tuple[str, str]]:
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
