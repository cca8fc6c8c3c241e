"""Which pages of one machine are one service, and which are diagnosed apart."""

from __future__ import annotations

import pytest

from latdoctor.collectors.prometheus.discovery import DiscoveredPage
from latdoctor.collectors.prometheus.local_services import services_of


def page(text: str) -> DiscoveredPage:
    """`8002 triton a,b`: the port, the dialect, the models."""
    port, dialect, *models = text.split(" ")
    names = tuple(models[0].split(",")) if models else ()
    dialects = () if dialect == "unknown" else (dialect,)
    return DiscoveredPage(port, dialect, dialects, (), None, names)


CASES = [
    ("one", ["8002 triton intent"], [["8002"]]),
    ("two-of-two-kinds", ["8002 triton intent", "8000 vllm chat"], [["8002"], ["8000"]]),
    ("two-of-one-kind", ["8002 triton intent", "9002 triton ranker"], [["8002"], ["9002"]]),
    ("replicas-of-one-model", ["8002 triton intent", "9002 triton intent,other"], [["8002", "9002"]]),
    ("replicas-without-models", ["8000 reference", "8001 reference"], [["8000", "8001"]]),
    ("a-router-and-its-workers", ["8000 vllm chat", "8001 vllm chat", "9000 vllm-router"], [["8000", "8001", "9000"]]),
    ("a-router-of-either", ["8000 vllm chat", "8001 vllm code", "9000 vllm-router"], [["8000"], ["8001"], ["9000"]]),
    ("an-unused-server", ["8002 triton intent", "8082 torchserve"], [["8002"], ["8082"]]),
    ("the-machine-is-of-all", ["8002 triton a", "8000 vllm b", "9400 dcgm"], [["8002", "9400"], ["8000", "9400"]]),
    ("the-machine-alone", ["9100 node-exporter", "9400 dcgm"], [["9100", "9400"]]),
    ("a-gateway-of-one", ["8002 triton a", "9901 envoy"], [["8002", "9901"]]),
    ("a-gateway-of-two", ["8002 triton a", "8000 vllm b", "9901 envoy"], [["8002"], ["8000"], ["9901"]]),
    ("a-page-that-joins-two", ["1 vllm a", "2 vllm b", "3 litellm a,b"], [["1"], ["2"], ["3"]]),
    ("a-server-of-both-models", ["1 vllm a", "2 vllm b", "3 vllm a,b"], [["1", "2", "3"]]),
    ("unknown-exporters-are-of-none", ["8002 triton a", "7000 unknown"], [["8002"]]),
    ("nothing", [], []),
]


@pytest.mark.parametrize(("pages", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_pages_of_one_machine(pages: list[str], expected: list[list[str]]) -> None:
    assert [list(one.urls) for one in services_of([page(text) for text in pages])] == expected


def test_a_service_is_called_by_its_models() -> None:
    assert services_of([page("8002 triton a,b,c,d,e")])[0].title == "triton (a, b, c and 2 more)"
