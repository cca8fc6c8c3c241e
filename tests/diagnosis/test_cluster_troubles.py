"""What is wrong in a cluster by its own account is printed by name, the gravest first, and not what is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.diagnosis.cluster_troubles import ClusterTrouble
from latdoctor.report import cluster_signs
from tests.cli.running import run

PODS = "NAME     READY   STATUS   RESTARTS   AGE\n"
NODES = "NAME   STATUS   ROLES   AGE   VERSION\n"
EVENTS = "LAST SEEN   TYPE      REASON   OBJECT   MESSAGE\n"


def answer(folder: Path, *texts: str) -> str:
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"{number}.txt")
        files[-1].write_text(text)
    out = run(["diagnose", *map(str, files)]).out
    lines = out.splitlines()
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    return " ".join(out.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PODS + "llm-0   0/1   CrashLoopBackOff   7 (1m ago)   2h\n", "crash loop: llm-0"),
        (PODS + "llm-0   0/1   OOMKilled   7 (1m ago)   2h\n", "killed for memory (OOMKilled): llm-0"),
        (PODS + "llm-0   0/1   ErrImagePull   0   2h\n", "image not pulled: llm-0"),
        (PODS + "llm-0   0/1   Evicted   0   2h\n", "evicted: llm-0"),
        (PODS + "llm-0   0/1   Pending   0   2h\n", "pending: llm-0"),
        (PODS + "llm-0   0/1   CreateContainerConfigError   0   2h\n", "container not started: llm-0"),
        (NODES + "g1   NotReady   <none>   9d   v1.31.0\n", "node not ready: g1"),
        (NODES + "g1   Ready,SchedulingDisabled   <none>   9d   v1.31.0\n", "cordoned: g1"),
        ("NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nllm   1/4   4   1   9d\n", "too few replicas: llm (1 of 4)"),
        (EVENTS + "2m   Warning   FailedMount   pod/llm-0   timed out\n", "volume not mounted: llm-0"),
        (
            EVENTS + '2m   Warning   FailedCreate   replicaset/llm   forbidden: exceeded quota: g, requested: pods=1\n',
            "pods not created: llm (quota g)",
        ),
        (EVENTS + "2m   Warning   DNSConfigForming   pod/llm-0   too many names\n", "other warnings: llm-0"),
        (
            EVENTS + "2m   Warning   FailedScheduling   pod/a   0/2 nodes are available: 2 had taint {x}.\n",
            "no node without a taint",
        ),
        (
            "Name:  q\nNamespace:  n\nResource  Used  Hard\n--------  ----  ----\npods  4  4\n",
            "quota used up: q (pods 4)",
        ),
    ],
)  # fmt: skip
def test_each_trouble_is_named(text: str, said: str, tmp_path: Path) -> None:
    found = answer(tmp_path, text)
    assert said in found
    assert "nothing wrong" not in found or "cordoned" in said


def test_a_state_counts_before_an_older_event(tmp_path: Path) -> None:
    """A container that runs without restarts is in no crash loop, whatever an event in the same text says."""
    text = (
        "Name:  llm-0\nNamespace:  a\nNode:  n/10.0.0.1\nStatus:  Running\nContainers:\n  server:\n"
        "    Container ID:  containerd://1\n    State:  Running\n    Ready:  True\n    Restart Count:  0\n"
        "Events:\n  Type     Reason   Age  From     Message\n"
        "  Warning  BackOff  50m  kubelet  Back-off restarting failed container server\n"
    )
    assert "crash loop" not in answer(tmp_path, text)
    waiting = text.replace("State:  Running", "State:  Waiting\n      Reason:  CrashLoopBackOff")
    assert "crash loop: server in llm-0" in answer(tmp_path, waiting)


def test_many_names_are_counted(tmp_path: Path) -> None:
    rows = "".join(f"llm-{number}   0/1   Pending   0   2h\n" for number in range(40))
    assert "pending: llm-0, llm-1 and 38 more" in answer(tmp_path, PODS + rows)


def test_the_gravest_of_many_kinds_are_printed(tmp_path: Path) -> None:
    name = "language-model-predictor-default-00001-deployment-7c9f8d9b66"
    states = ("CrashLoopBackOff", "OOMKilled", "ErrImagePull", "Evicted", "Pending", "StartError")
    rows = "".join(f"{name}-{number}   0/1   {state}   0   2h\n" for number, state in enumerate(states))
    found = answer(tmp_path, PODS + rows)
    assert "killed for memory (OOMKilled)" in found
    assert "more kinds of trouble" in found


def test_what_is_used_is_shown_beside_its_limit_of_another_file(tmp_path: Path) -> None:
    limits = (
        "Name:  llm-0\nNamespace:  a\nNode:  n/10.0.0.1\nStatus:  Running\nContainers:\n  server:\n"
        "    Container ID:  containerd://1\n    Ready:  True\n    Restart Count:  0\n    Limits:\n      memory:  10Gi\n"
    )
    top = "NAMESPACE   POD     NAME     CPU(cores)   MEMORY(bytes)\na   llm-0   server   100m   9728Mi\n"
    assert "container memory 9.5 GiB (95 % of its limit)" in answer(tmp_path, limits, top)


def test_every_kind_of_trouble_has_words() -> None:
    assert set(cluster_signs.WORDS) == set(ClusterTrouble)
