"""The workload on Kubernetes that a remediation changes: the one that `--kube` or the configured target names."""

from __future__ import annotations

from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.options import SourceOptions
from latdoctor.cluster_api import Login
from latdoctor.errors import UsageError
from latdoctor.http.client import Secret
from latdoctor.remediation.actions.kubernetes.find_workload import kubernetes_target
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.target import Access, TargetKind


def kube_names(sources: SourceOptions, settings: TargetSettings) -> tuple[str, ...]:
    """The named workloads: those of the options, else the configured ones."""
    return sources.kube or settings.kube


def kube_access(playbook: Playbook, sources: SourceOptions, settings: TargetSettings) -> Access | None:
    """The one workload that `playbook` would change; None for a playbook that changes something else.

    Raises UsageError where none or several are named, or there is none of that name.
    """
    if TargetKind.KUBERNETES not in playbook.targets:
        return None
    names = kube_names(sources, settings)
    if len(names) != 1:
        what = f"{len(names)} are named" if names else "none is named"
        raise UsageError(
            f"{playbook.id} changes one workload on Kubernetes, and {what}",
            next_step="name it: --kube NAMESPACE/NAME, with --server URL of the page that shows the effect",
        )
    context = sources.kube_context or ("" if sources.kube else settings.kube_context)
    title = "" if sources.kube else settings.name
    return Access(kubernetes_target(names[0], Login(sources.kubeconfig, context), title), Secret())
