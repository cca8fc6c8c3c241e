"""Computing on the CPU by fallback, in the words of each framework; lines that only name a CPU are none."""

from __future__ import annotations

import pytest

from latdoctor.collectors.logs import collector as logs
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

ORT = "2026-01-31 12:00:00.123456789 [W:onnxruntime:Default, x.cc:1 F] "
CASES = [
    (ORT + "Failed to create CUDAExecutionProvider. Please reference https://x", "provider-not-created", "onnxruntime"),
    (ORT + "Failed to create TensorrtExecutionProvider. Require cuDNN 9.*", "provider-not-created", "onnxruntime"),
    ("Falling back to ['CPUExecutionProvider'] and retrying.", "fell-back", "onnxruntime"),
    (
        "UserWarning: Specified provider 'CUDAExecutionProvider' is not in available provider names."
        "Available providers: 'AzureExecutionProvider, CPUExecutionProvider'",
        "provider-not-available",
        "onnxruntime",
    ),
    (
        ORT + "[ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: y",
        "library-not-loaded",
        "onnxruntime",
    ),
    (
        ORT + 'FAIL : LoadLibrary failed with error 126 "" when trying to load "D:\\onnxruntime_providers_cuda.dll"',
        "library-not-loaded",
        "onnxruntime",
    ),
    (
        "/x/torch/cuda/__init__.py:141: UserWarning: CUDA initialization: CUDA unknown error",
        "cuda-not-initialised",
        "pytorch",
    ),
    ("Neither CUDA nor MPS are available - defaulting to CPU. Note: it is slow", "no-gpu", "pytorch"),
    ("tensorflow: Could not find cuda drivers on your machine, GPU will not be used.", "no-gpu", "tensorflow"),
    ("W gpu_device.cc:1] Cannot dlopen some GPU libraries. Please make sure", "library-not-loaded", "tensorflow"),
    ("WARNING:jax:No GPU/TPU found, falling back to CPU. (Set TF_CPP_MIN_LOG_LEVEL=0)", "no-gpu", "jax"),
    ("An NVIDIA GPU may be present, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.", "no-gpu", "jax"),
    ("AssertionError: Torch not compiled with CUDA enabled", "built-without-gpu", None),
    ("warning: not compiled with GPU offload support, --gpu-layers option will be ignored", "built-without-gpu", None),
    ("Could not find a compatible CUDA device on host: CUDA is not available", "fell-back", None),
]


def parsed(text: str) -> Evidence:
    return logs.READER.parse([Artifact("logs/a", "logs", "a", "a", 1.77e9, text.encode())])


@pytest.mark.parametrize(("line", "kind", "framework"), CASES)
def test_each_fallback_is_one_event(line: str, kind: str, framework: str | None) -> None:
    (event,) = [one for one in parsed(line).events if one.signal == "log.cpu_fallback"]
    assert (event.fields["kind"], event.fields.get("framework")) == (kind, framework)


def test_placement_of_nodes() -> None:
    lines = [
        ORT + "4 Memcpy nodes are added to the graph main_graph for CUDAExecutionProvider. It might",
        ORT + " Node(s) placed on [CPUExecutionProvider]. Number of nodes: 12",
        ORT + " Node(s) placed on [CUDAExecutionProvider]. Number of nodes: 345",
        ORT + "Some nodes were not assigned to the preferred execution providers which may or may not",
        "INFO Device set to use cpu",
        "INFO providers: ['CUDAExecutionProvider', 'CPUExecutionProvider']",
        "INFO CPU has 8 cores",
    ]
    found = parsed("\n".join(lines))
    assert {one.signal: one.value for one in found.readings} == {
        "offload.memcpy_nodes": 4,
        "offload.nodes_cpu": 12,
        "offload.nodes_gpu": 345,
    }
    assert not [one for one in found.events if one.signal == "log.cpu_fallback"]
    assert "log.cpu_fallback" not in {signal for signal, _ in found.looked}
