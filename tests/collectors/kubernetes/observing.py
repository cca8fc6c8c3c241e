"""A workload observed with the collector, and diagnosed from that alone."""

from __future__ import annotations

from pathlib import Path

from latdoctor.case_from_bundle import case, seen
from latdoctor.cluster_api import Login
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import CollectRequest, KubernetesWorkloads
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evidence.bundle import Bundle, Context


def bundle_of(
    kubeconfig: Path | None, *names: str, context: str = "", timeout: float = 5.0, window: float = 10.0
) -> Bundle:
    wanted = KubernetesWorkloads(names, Login(kubeconfig, context))
    request = CollectRequest(kubernetes=wanted, timeout=timeout, window=window)
    return collect_bundle(COLLECTORS, request, Context(names[0]), SystemClock())


def diagnosis_of(bundle: Bundle) -> Diagnosis:
    evidence, coverage = seen(bundle)
    return diagnose(case(bundle, evidence, coverage), shipped(), Stamp("test", "2026-01-01T00:00:00+00:00"))


def named(diagnosis: Diagnosis) -> list[str]:
    """The named causes, the first first."""
    return [one.id for one in diagnosis.causes if one.named]
