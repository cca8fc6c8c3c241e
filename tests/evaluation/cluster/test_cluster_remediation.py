"""Which playbook of a diagnosis the benchmark keeps: the first that is not refused."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evaluation.cluster import cluster_remediation
from latdoctor.evaluation.cluster.cluster_remediation import ClusterRemediation, remediate

QUOTA, PREEMPT = "infra.kubernetes.quota-raise", "infra.kubernetes.priority-preempt"


@pytest.mark.parametrize(
    ("codes", "kept"),
    [
        ({}, None),
        ({QUOTA: 0}, (QUOTA, 0)),
        ({PREEMPT: 2, QUOTA: 3}, (QUOTA, 3)),
        ({PREEMPT: 0, QUOTA: 0}, (PREEMPT, 0)),
        ({PREEMPT: 5, QUOTA: 1}, (QUOTA, 1)),
    ],
    ids=["none leads to one", "verified", "the next after a refused one", "the first verified", "all refused"],
)
def test_playbooks_are_run_until_one_is_not_refused(
    monkeypatch: pytest.MonkeyPatch, codes: dict[str, int], kept: tuple[str, int] | None
) -> None:
    def run(playbook: str, _: Any) -> ClusterRemediation:
        return ClusterRemediation(playbook, codes[playbook])

    monkeypatch.setattr(cluster_remediation, "opened", lambda _: nullcontext())
    monkeypatch.setattr(cluster_remediation, "seen", lambda _: ())
    monkeypatch.setattr(cluster_remediation, "case", lambda *_: None)
    monkeypatch.setattr(cluster_remediation, "diagnose", lambda *_: None)
    monkeypatch.setattr(cluster_remediation, "_playbooks", lambda _: dict.fromkeys(codes, ()))
    monkeypatch.setattr(cluster_remediation, "_run", run)
    found = remediate(Path("unused"), shipped(), ())
    assert (None if found is None else (found.playbook, found.exit_code)) == kept
