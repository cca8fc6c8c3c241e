"""A workload of a Kubernetes cluster: its objects, fetched from the API server and read as kubectl's output is."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader
from latdoctor.evidence.model import Evidence, kind_of

NAME = "kubernetes"
TITLE = "Kubernetes"


def provided_signals() -> frozenset[str]:
    """The signals of objects, of the cluster's accelerators, of CPU limits and of clocks."""
    from latdoctor.collectors.documents.kubernetes import SIGNALS
    from latdoctor.collectors.kubernetes import accelerators
    from latdoctor.collectors.kubernetes.resources import CPU_COUNTERS

    return SIGNALS | set(accelerators.SIGNALS) | set(CPU_COUNTERS) | {"host.clock.offset"}


def _is_on_kubernetes(evidence: Evidence) -> bool:
    return any(kind_of(one.id) in ("container", "pod") for one in evidence.subjects)


def _reader() -> SourceReader:
    from latdoctor.collectors.kubernetes.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=provided_signals,
    is_requested=lambda request: request.kubernetes is not None,
    reader=_reader,
    option="--kube NAMESPACE/NAME",
    cost="asks the API server",
    only_positive=frozenset({"host.clock.offset", "log.gpu_lost", "log.xid"}),  # reported where there is one only
    may_exist=_is_on_kubernetes,
)
