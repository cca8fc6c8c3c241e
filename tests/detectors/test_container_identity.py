"""The counters of a metrics page belong to the container of the cluster that has them, where that is certain."""

from __future__ import annotations

import pytest

from latdoctor.detectors.container_identity import merge_container_subjects
from latdoctor.evidence.model import Evidence, Origin, Reading, Subject

NAME = "container/prod/chat-7f-x/server"
COUNTED = f"{NAME}@prometheus:9090"


def cluster(name: str) -> Evidence:
    pod, container = f"pod/prod/chat-7f-x@{name}", f"{NAME}@{name}"
    return Evidence(
        subjects=(Subject(f"cluster/{name}"), Subject(pod, f"cluster/{name}"), Subject(container, pod)),
        readings=(Reading("container.cpu.limit", container, 2.0, Origin("kubernetes/pods.json")),),
    )


PAGE = Evidence(
    subjects=(Subject("server/prometheus:9090"), Subject(COUNTED, "server/prometheus:9090")),
    readings=(Reading("cgroup.cpu.throttled_ratio", COUNTED, 0.6, Origin("promql/last.json")),),
)


def test_the_counters_of_a_page_are_of_the_container_of_the_cluster() -> None:
    found = merge_container_subjects(Evidence.merge([cluster("west"), PAGE]))
    (ratio,) = found.readings_by_signal["cgroup.cpu.throttled_ratio"]
    assert ratio.subject == f"{NAME}@west"
    assert found.lineage(ratio.subject) == (f"{NAME}@west", "pod/prod/chat-7f-x@west", "cluster/west")
    assert merge_container_subjects(found) == found


@pytest.mark.parametrize("clusters", [(), ("west", "east")])
def test_a_container_of_no_cluster_or_of_one_of_two_keeps_its_name(clusters: tuple[str, ...]) -> None:
    evidence = Evidence.merge([*map(cluster, clusters), PAGE])
    assert merge_container_subjects(evidence) == evidence
