"""The answer to a GPU fault on Kubernetes: which pod of which node holds which device with which Xid."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run

INCIDENTS = Path(__file__).parent / "incidents"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            ("infra.gpu.xid-fault/pod-of-a-node/dcgm.prom", "infra.gpu.xid-fault/pod-of-a-node/kern.log"),
            "GPU 0000:9b:00 of pod prod/chat-6f7d8c9b5d-x2x4p (container server) on node gpu-3: Xid 119",
        ),
        (
            ("infra.gpu.lost/nvsentinel/objects.json",),
            "a GPU of pod prod/chat-6f7d8c9b5d-x2x4p on node gpu-3 fell off the bus",
        ),
    ],
)
def test_a_fault_names_pod_node_and_device(files: tuple[str, ...], said: str) -> None:
    outcome = run(["diagnose", *(str(INCIDENTS / one) for one in files), "-v"])
    assert said in " ".join(outcome.out.split())
    assert "train-0" not in outcome.out
