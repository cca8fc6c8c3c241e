"""The workload on Kubernetes that a remediation changes: the one that `--kube` or the configured target names."""

from __future__ import annotations

from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.kube_workloads import workloads_of
from latdoctor.cli.options import SourceOptions
from latdoctor.errors import UsageError
from latdoctor.http.client import Secret
from latdoctor.remediation.actions.kubernetes.find_workload import kubernetes_target
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.target import Access, TargetKind


def kube_access(playbook: Playbook, sources: SourceOptions, settings: TargetSettings) -> Access | None:
    """The one workload that `playbook` would change; None for a playbook that changes something else.

    Raises UsageError where none or several are named, or there is none of that name.
    """
    if TargetKind.KUBERNETES not in playbook.targets:
        return None
    named = workloads_of(sources, settings)
    if named is None or len(named.names) != 1:
        what = f"{len(named.names)} are named" if named else "none is named"
        raise UsageError(
            f"{playbook.id} changes one workload on Kubernetes, and {what}",
            next_step="name it: --kube NAMESPACE/NAME, with --server URL of the page that shows the effect",
        )
    title = "" if sources.kube else settings.name
    return Access(kubernetes_target(named.names[0], named.login, title), Secret())
