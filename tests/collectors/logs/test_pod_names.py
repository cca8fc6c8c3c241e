"""The service of a pod or a container, by the ending of its name."""

from __future__ import annotations

import pytest

from latdoctor.collectors.logs.pod_names import service_of

SERVICES = {
    "chat-7b-6f7d8c9b5d-x2x4p": "chat-7b",
    "node-exporter-8c2xk": "node-exporter",
    "vllm-0": "vllm",
    "llama-405b-0-1": "llama-405b",
    "vllm-a-1": "vllm",
    "vllm-b-1": "vllm",
    "vllm-chat-1": "vllm-chat",
    "vllm-embed-1": "vllm-embed",
    "proj_vllm_1": "proj_vllm",
    "sglang-decode-0": "sglang-decode",
    "vllm": "vllm",
    "7": "7",
    "": "",
}


@pytest.mark.parametrize("pod", SERVICES)
def test_the_service_of_a_pod(pod: str) -> None:
    assert service_of(pod) == SERVICES[pod]
