"""The pod and the node of a GPU, and that a workload is not blamed for the GPUs of other pods."""

from __future__ import annotations

import pytest
from msgspec import structs

from latdoctor.detectors import derive
from latdoctor.detectors.gpu_holders import HOLDER, gpu_holders, without_foreign_gpus
from latdoctor.evidence.model import Event, Evidence, Labels, Origin, Reading, Subject
from latdoctor.gap_code import GapCode

PAGE, LIVE, LOG = Origin("prometheus/dcgm.prom"), Origin("kubernetes/1-prod-chat-pods.json"), Origin("logs/kern.log")
NODE, POD = "node/gpu-3@west", "pod/prod/chat-0@west"
SERVER = "server/10.0.3.4:9400"


def reading(signal: str, subject: str, value: float | str, origin: Origin = PAGE, labels: Labels = ()) -> Reading:
    return Reading(signal, subject, value, origin, labels=labels)


def exported(number: int, pod: str, container: str = "server", pci: str = "") -> tuple[Reading, ...]:
    """A GPU on the page of dcgm-exporter; `pod`: `prod/chat-0`, empty for one that no pod has."""
    gpu = f"gpu/{number}@10.0.3.4:9400"
    namespace, _, name = pod.partition("/")
    texts = {"gpu.pod": name, "gpu.pod_namespace": namespace, "gpu.pod_container": container if pod else ""}
    texts |= {"gpu.pci": pci, "gpu.uuid": f"GPU-{number}0000000-0000-4000-8000-000000000000"}
    found = [reading(signal, gpu, text) for signal, text in texts.items() if text]
    return *found, reading("gpu.host", gpu, "gpu-3"), reading("gpu.xid.last", gpu, 119.0)


def page(*gpus: tuple[Reading, ...]) -> Evidence:
    readings = tuple(one for found in gpus for one in found)
    return Evidence(
        subjects=tuple({one.subject: Subject(one.subject, SERVER) for one in readings}.values()), readings=readings
    )


def workload(gpus: float, of: float = 8.0, origin: Origin = LIVE) -> Evidence:
    """The pod prod/chat-0 with GPUs on a node that has `of`."""
    container = "container/prod/chat-0/server@west"
    return Evidence(
        subjects=(Subject("cluster/west"), Subject(NODE, "cluster/west"), Subject(POD, NODE), Subject(container, POD)),
        readings=(
            reading("pod.ready", POD, 1.0, origin),
            reading("container.gpu.limit", container, gpus, origin, (("resource", "nvidia.com/gpu"),)),
            reading("node.gpus_capacity", NODE, of, origin),
        ),
    )


def xid(subject: str, parent: str) -> Evidence:
    event = Event("log.xid", subject, LOG, {"code": 119.0}, 1.0)
    return Evidence(subjects=(Subject(parent), Subject(subject, parent)), events=(event,))


def holders(evidence: Evidence) -> dict[str, str]:
    return {one.subject: str(one.value) for one in gpu_holders(evidence).readings if one.signal == HOLDER}


def test_the_pod_and_node_that_an_exporter_names_hold_the_gpu() -> None:
    found = holders(page(exported(0, "prod/chat-0"), exported(1, "")))
    assert found == {"gpu/0@10.0.3.4:9400": "pod prod/chat-0 (container server) on node gpu-3"}


def test_the_exporters_own_pod_holds_no_gpu() -> None:
    """A Prometheus server adds the labels of its target, which is the pod of the exporter."""
    assert holders(page(exported(0, "gpu-operator/nvidia-dcgm-exporter-x2x4p", "nvidia-dcgm-exporter"))) == {}


@pytest.mark.parametrize(("gpus", "known"), [(8.0, True), (4.0, False)])
def test_a_pod_with_all_gpus_of_its_node_holds_each_of_them(gpus: float, known: bool) -> None:
    reported = xid("gpu/0000:9b:00@gpu-3", NODE)
    found = holders(Evidence.merge([workload(gpus), reported]))
    assert found == ({"gpu/0000:9b:00@gpu-3": "pod prod/chat-0 on node gpu-3"} if known else {})


def test_a_xid_in_the_log_of_a_node_is_of_the_pod_that_its_exporter_names() -> None:
    """The log has the address, the page has address, machine and pod."""
    gpus = page(
        exported(0, "batch/train-0", pci="00000000:3B:00.0"), exported(1, "prod/chat-0", pci="00000000:9B:00.0")
    )
    found = derive(Evidence.merge([gpus, xid("gpu/0000:9b:00@gpu-3", "node/gpu-3")]))
    (event,) = found.events_by_signal["log.xid"]
    assert holders(found)[event.subject] == "pod prod/chat-0 (container server) on node gpu-3"


def test_a_gpu_of_another_pod_is_no_trouble_of_a_workload() -> None:
    own, foreign = (
        exported(1, "prod/chat-0", pci="00000000:9B:00.0"),
        exported(0, "batch/train-0", pci="00000000:3B:00.0"),
    )
    evidence = Evidence.merge([workload(1.0), page(own, foreign), xid("gpu/0000:3b:00@gpu-3", "node/gpu-3")])
    found = derive(evidence)
    assert [one.subject for one in found.readings_by_signal["gpu.xid.last"]] == ["gpu/1@10.0.3.4:9400"]
    assert found.events == ()
    (gap,) = [one for one in found.gaps if one.code == GapCode.NOT_MATCHED]
    assert "batch/train-0" in gap.reason
    assert without_foreign_gpus(found) == found


@pytest.mark.parametrize(
    "evidence",
    [
        page(exported(0, "batch/train-0")),
        Evidence.merge([workload(1.0, origin=Origin("documents/pods.json")), page(exported(0, "batch/train-0"))]),
        Evidence.merge([workload(0.0), page(exported(0, "batch/train-0"))]),
        Evidence.merge([workload(1.0), page(exported(0, ""))]),
        Evidence.merge([workload(1.0), page(exported(0, "gpu-operator/exporter-x2x4p", "dcgm-exporter"))]),
    ],
    ids=["no-cluster", "pasted-pods", "workload-without-gpus", "gpu-without-pod", "exporters-own-pod"],
)
def test_what_may_be_of_the_workload_stays(evidence: Evidence) -> None:
    assert structs.replace(without_foreign_gpus(evidence), gaps=evidence.gaps) == evidence
