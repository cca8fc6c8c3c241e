"""Merge the subjects under which cAdvisor and the API server report one container.

Kubernetes shows `container/prod/chat-7f-x/server@west` with its limits; a metrics page, or a Prometheus server that
scrapes the kubelets, has the counters of `container/prod/chat-7f-x/server@prometheus:9090`. They are one container
where exactly one cluster is known that has it.
"""

from __future__ import annotations

from latdoctor.detectors.renamed_subjects import renamed
from latdoctor.evidence.model import Evidence, kind_of
from latdoctor.evidence.subject_branch import cluster_of

_PARTS = 4  # container/NAMESPACE/POD/NAME


def merge_container_subjects(evidence: Evidence) -> Evidence:
    """Return `evidence` with one subject per container: that of the cluster. Idempotent."""
    known: dict[str, list[str]] = {}
    reported: list[tuple[str, str]] = []
    for one in evidence.subjects:
        path = one.id.rpartition("@")[0]
        if kind_of(one.id) != "container" or len(path.split("/")) != _PARTS:
            continue
        if cluster_of(evidence, one.id):
            known.setdefault(path, []).append(one.id)
        elif one.parent and kind_of(one.parent) == "server":
            reported.append((one.id, path))
    names = {subject: known[path][0] for subject, path in reported if len(known.get(path, ())) == 1}
    return renamed(evidence, names, evidence.parents) if names else evidence
