"""Engines: what stands in each kind of file, alone and together, and what one alone cannot tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.tensorrt import COLLECTOR
from latdoctor.collectors.tensorrt.engine_figures import is_without_tensor_cores, type_of
from latdoctor.collectors.tensorrt.file_formats import EngineLayer, Tensor
from latdoctor.errors import SourceError
from latdoctor.lab.telemetry.generate import generate_telemetry
from tests.cli.running import checks, diagnosed, named
from tests.collectors.seen import hidden, readings, values
from tests.collectors.tensorrt.synthetic_engines import FP16, FP32, INT8, graph, layer, parsed, profile

ROOT = "tensorrt/trex/examples/pytorch/resnet/A100"
STEM = {"fp32": "resnet.onnx.engine", "fp16": "resnet.onnx.engine", "qat": "resnet-qat.onnx.engine"}
CONVOLUTION = {"ParameterType": "Convolution"}


def sample(samples: Path, kind: str, form: str = "graph") -> Path:
    return samples / ROOT / kind / f"{STEM[kind]}.{form}.json"


class Clock:
    def now(self) -> float:
        return 1.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is waited for")


def seen_of(samples: Path, kind: str) -> dict[str, float]:
    found = COLLECTOR.collect(CollectRequest(tensorrt=(sample(samples, kind),)), Clock())
    return dict(values(COLLECTOR.parse(found.artifacts)))


# What a person reads out of three engines of one network (figures of the table in ms and %).


@pytest.mark.parametrize(
    ("kind", "layers", "time", "reformats", "reformat_share", "quantising", "float_out", "fp32"),
    [
        ("fp32", 32, 2.124, 1, 2.1, 0, 0, 21),
        ("fp16", 36, 1.017, 2, 8.7, 0, 0, 0),
        ("qat", 37, 1.096, 12, 25.4, 10, 13, 0),
    ],
)
def test_three_engines(
    samples: Path, kind: str, layers: int, time: float, reformats: int, reformat_share: float, quantising: int,
    float_out: int, fp32: int,
) -> None:  # fmt: skip
    seen = seen_of(samples, kind)
    assert seen["engine.layers"] == layers
    assert seen["engine.layer_time"] == pytest.approx(time / 1000, abs=5e-7)
    assert seen["engine.reformat.count"] == reformats
    assert seen["engine.reformat.time_share"] * 100 == pytest.approx(reformat_share, abs=0.1)
    assert seen["engine.quantising.count"] == quantising
    assert seen["engine.float_out.count"] == float_out
    assert seen["engine.fp32.count"] == fp32
    assert seen["engine.fallback.count"] == seen["engine.no_tensor_cores.count"] == 0
    assert seen["engine.enqueue_ratio"] < 0.01


def test_times_of_what_is_unfused(samples: Path) -> None:
    seen = seen_of(samples, "qat")
    assert seen["engine.quantising.time_share"] == pytest.approx(0.212, abs=0.001)
    assert seen["engine.float_out.time_share"] * seen["engine.layer_time"] == pytest.approx(0.501e-3, abs=1e-6)
    fp32 = seen_of(samples, "fp32")
    assert fp32["engine.fp32.time_share"] * fp32["engine.layer_time"] == pytest.approx(1.975e-3, abs=1e-6)


def test_the_quantised_engine_is_found_unfused_against_fp16(samples: Path) -> None:
    given = ("--tensorrt", str(sample(samples, "qat")), "--tensorrt", str(sample(samples, "fp16")))
    document = diagnosed(*given)
    assert named(document) == ["framework.fusion.missed"]
    fired = checks(document, "fired")
    assert {"engine-quantisation-unfused", "engine-gives-float", "engine-narrow-and-slow"} == fired.keys()
    assert fired["engine-narrow-and-slow"]["subjects"] == ["engine/resnet-qat.onnx.engine"]
    assert "108 %" in fired["engine-narrow-and-slow"]["message"]


@pytest.mark.parametrize("kind", ["fp32", "fp16"])
def test_sound_engines_give_no_finding(samples: Path, kind: str) -> None:
    assert checks(diagnosed("--tensorrt", str(sample(samples, kind))), "fired") == {}


def test_engines_of_one_name_are_told_apart_by_their_folders(samples: Path) -> None:
    given = (sample(samples, "fp16"), sample(samples, "fp32"))
    found = COLLECTOR.collect(CollectRequest(tensorrt=given), Clock())
    assert {one.group for one in found.artifacts} == {"fp16-resnet.onnx.engine", "fp32-resnet.onnx.engine"}
    assert len(found.artifacts) == 5 + 6, "the neighbours of each are taken along"


# What the laboratory makes.


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("severity", [0.3, 1.0])
@pytest.mark.parametrize("cause", ["framework.fusion.missed", "framework.precision.fallback"])
def test_synthetic_engines_are_named_from_their_files(cause: str, severity: float, seed: int, tmp_path: Path) -> None:
    for name, file in generate_telemetry(cause, seed, severity).raw.items():
        if name.startswith("tensorrt/"):
            (tmp_path / name.rpartition("/")[2]).write_bytes(file.content)
    assert named(diagnosed("--tensorrt", str(tmp_path))) == [cause]
    assert named(diagnosed("--tensorrt", str(tmp_path / "resnet.plan.graph.json"))) == [cause]


# The judgements, one by one.


def test_reformats_are_told_by_their_type_and_not_by_their_name() -> None:
    found = values(
        parsed(
            graph(
                layer("QuantizeLinear_1", "Reformat", FP32, INT8, Origin="QDQ"),
                layer("Reformatting CopyNode for Input Tensor 0 to a", "NoOp", FP16, FP16),
                layer("Reformatting CopyNode for Input Tensor 0 to b", "Reformat", FP16, FP16, Origin="REFORMAT"),
                layer("dangling", "Scale", FP16, INT8),
                layer("sound", "Scale", INT8, INT8),
                layer("a + b", "CaskConvolution", INT8, INT8, **CONVOLUTION),
            )
        )
    )
    assert found["engine.reformat.count"] == 2
    assert found["engine.converting.count"] == 1
    assert found["engine.quantising.count"] == 2


@pytest.mark.parametrize(
    ("tactic", "kind", "channels", "without"),
    [
        ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc", FP16, 64, False),
        ("ampere_h16816cudnn_128x128_ldg8_relu_exp_stages_64x3_large_nhwc_tn_v1", FP16, 64, False),
        ("turing_h1688cudnn_128x128_ldg8_relu", FP16, 64, False),
        ("volta_fp16_s884cudnn_fp16_128x64", FP16, 64, False),
        ("ampere_fp32_icudnn_int8x4_128x64_relu_medium_nn_v1", INT8, 3, False),
        ("ampere_fp32_icudnn_int8x4_128x64_relu_medium_nn_v1", INT8, 64, True),
        ("ampere_scudnn_128x64_relu_xregs_large_nn_v1", FP32, 64, False),
        ("maxwell_fp16_hcudnn_fp16_128x64_relu_interior", FP16, 64, True),
        ("", FP16, 64, False),
    ],
)
def test_tensor_cores_are_told_by_the_tactic(tactic: str, kind: str, channels: int, without: bool) -> None:
    inputs = (Tensor("a", kind, (1, channels, 8, 8)),)
    assert (
        is_without_tensor_cores(EngineLayer("a", "CaskConvolution", "Convolution", inputs, inputs, "", tactic))
        is without
    )


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("Row major linear FP32", "FP32"), ("Half", "FP16"), ("Float", "FP32"), ("Channel major FP16 format", "FP16"),
        ("Row major Int8 format", "INT8"), ("BFloat16", "BF16"), ("FP8 E4M3", "FP8"), ("Int32", ""), ("", ""),
    ],
)  # fmt: skip
def test_types_of_tensors(form: str, kind: str) -> None:
    assert type_of(Tensor("a", form, ())) == kind


def test_fp32_is_a_fallback_only_where_less_was_meant() -> None:
    wide = layer("a", "CaskConvolution", FP32, FP32, **CONVOLUTION)
    alone = parsed(graph(wide))
    assert "engine.fallback.count" in hidden(alone)
    beside = values(parsed(graph(wide, layer("b", "CaskGemm", FP16, FP16))))
    assert beside["engine.fallback.count"] == 1
    allowed = json.dumps({"build_options": {"Precision": "FP32+FP16"}}).encode()
    assert values(parsed(graph(wide), allowed))["engine.fallback.count"] == 1
    only = json.dumps({"build_options": {"Precision": "FP32"}}).encode()
    assert values(parsed(graph(wide), only))["engine.fallback.count"] == 0


def test_times_need_a_profile_of_this_engine() -> None:
    layers = graph(layer("a", "CaskConvolution"), layer("b", "PointWiseV2"))
    assert "engine.pointwise.time_share" in hidden(parsed(layers))
    assert values(parsed(layers, profile(a=3, b=1)))["engine.pointwise.time_share"] == 0.25
    other = parsed(layers, profile(x=3, y=1))
    assert any("another engine" in gap.reason for gap in other.gaps)
    assert "engine.pointwise.time_share" in hidden(other)


def test_layers_of_one_name_have_their_own_times() -> None:
    twice = graph(layer("a", "CaskConvolution"), layer("a", "PointWise"))
    rows = [{"count": 1}, {"name": "a", "averageMs": 3}, {"name": "a", "averageMs": 1}]
    assert values(parsed(twice, json.dumps(rows).encode()))["engine.pointwise.time_share"] == 0.25


def test_names_alone_tell_how_to_build() -> None:
    found = parsed(json.dumps({"Layers": ["conv1", "conv2"], "Bindings": []}).encode())
    assert any("--profilingVerbosity=detailed" in gap.next_step for gap in found.gaps)
    assert "engine.layers" in hidden(found)


@pytest.mark.parametrize("key", ["computeMs", "start"])
def test_runs_of_old_and_new_versions(key: str) -> None:
    took = {"computeMs": 2.0} if key == "computeMs" else {"startComputeMs": 5.0, "endComputeMs": 7.0}
    rows = [{"startEnqMs": 1.0, "endEnqMs": 4.0, "latencyMs": 2.5, **took}] * 5
    seen = values(parsed(json.dumps(rows).encode()))
    assert seen["engine.compute.median"] == 0.002
    assert seen["engine.enqueue_ratio"] == 1.5


def test_an_enqueue_bound_engine_fires(tmp_path: Path) -> None:
    rows = [{"startEnqMs": 1.0, "endEnqMs": 4.0, "computeMs": 2.0}] * 5
    path = tmp_path / "m.timing.json"
    path.write_text(json.dumps(rows))
    assert "engine-enqueue-bound" in checks(diagnosed("--tensorrt", str(path)), "fired")


HEAD = "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=m.onnx --fp16 --verbose\n"
STAMP = "[11/22/2026-01:02:03] "
BUILD = STAMP + "[I] Precision: FP32+FP16\n" + STAMP + "[V] [TRT] After vertical fusions: 79 layers\n"


def test_what_a_build_says() -> None:
    text = HEAD + BUILD
    text += (
        STAMP + "[V] [TRT] Rejecting some int8 implementation of layer conv_7 due to missing int8 scales for tensor x\n"
    )
    text += STAMP + "[W] [TRT] No implementation of layer fc_1 obeys the requested constraints in strict mode.\n"
    text += (
        STAMP + "[W] [TRT] No implementation obeys reformatting-free rules, at least 5 reformatting nodes are needed\n"
    )
    text += (
        STAMP + "[I] Selected Device: NVIDIA L4   \n" + STAMP + "[I] GPU Compute Time: min = 1 ms, median = 2.5 ms, x\n"
    )
    text += STAMP + "[I] Enqueue Time: min = 1 ms, max = 9 ms, mean = 2 ms, median = 3 ms, percentile(90%) = 4 ms\n"
    found = readings(parsed(text.encode()))
    assert (found["engine.rejected"].value, found["engine.rejected"].origin.place) == (1, "conv_7")
    assert (found["engine.unconstrained"].value, found["engine.unconstrained"].origin.place) == (1, "fc_1")
    assert found["engine.reformats_needed"].value == 5
    assert found["engine.device"].value == "NVIDIA L4"
    assert found["engine.precision"].value == "FP32+FP16"
    assert found["engine.enqueue_ratio"].value == 1.2


def test_a_log_that_is_not_verbose_hides_what_the_builder_did() -> None:
    found = parsed((HEAD + STAMP + "[I] Selected Device: NVIDIA L4\n").encode())
    assert {"engine.rejected", "engine.reformats_needed"} <= hidden(found)


@pytest.mark.parametrize(
    "said",
    [
        "[E] 3: Error Code 3: API Usage Error (Parameter check failed, condition: profileMaxDims.d[i] >= dimension"
        ". Supplied binding dimension [32,3,32,32] for bindings[0] exceed min ~ max range at index 0)",
        "[TRT] [E] IExecutionContext::setInputShape: Error Code 3: condition: satisfyProfile. Set dimension [1,1620] "
        "for tensor x does not satisfy any optimization profiles. Valid range for profile 0: [1,3240]..[1,12960].",
    ],
)
def test_a_shape_outside_the_profile_in_the_words_of_every_version(said: str, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"{STAMP}[TRT] [I] Loaded engine size: 13 MiB\n{STAMP}{said}\n")
    assert "engine-shape-refused" in checks(diagnosed("--tensorrt", str(path)), "fired")


def shapes(least: str, most: str, run: str) -> bytes:
    text = HEAD + STAMP + f"[I] Input build shape (profile 0): x={least}+{least}+{most}\n"
    return (text + STAMP + f"[I] Input inference shape : x={run}\n").encode()


@pytest.mark.parametrize(("run", "count"), [("16x3x8x8", 0), ("1x3x8x8", 0), ("32x3x8x8", 1), ("16x3x9x8", 1)])
def test_a_shape_outside_the_profile_by_the_options(run: str, count: int) -> None:
    found = readings(parsed(shapes("1x3x8x8", "16x3x8x8", run)))["engine.shape_refused"]
    assert found.value == count


def test_an_engine_of_another_gpu_is_told_by_the_log() -> None:
    said = "[W] [TRT] Using an engine plan file across different models of devices is not recommended"
    assert values(parsed((STAMP + said).encode()))["engine.foreign_device"] == 1


def test_a_file_that_cannot_be_read_hides_no_other() -> None:
    found = parsed(graph(layer("a", "CaskConvolution")), b"{")
    assert values(found)["engine.layers"] == 1
    assert any("no readable JSON" in gap.reason for gap in found.gaps)


def test_an_engine_itself_is_not_opened() -> None:
    with pytest.raises(SourceError, match="nothing of a TensorRT engine"):
        parsed(b"ftrt\x00\x00\x00\x00" + bytes(300))


def test_a_builder_that_does_not_speak_of_conversions_needs_an_unknown_number() -> None:
    found = parsed((HEAD + BUILD).encode())
    assert values(found)["engine.rejected"] == 0
    assert "engine.reformats_needed" in hidden(found)
