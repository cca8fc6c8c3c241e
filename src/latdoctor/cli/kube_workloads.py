"""The workloads on Kubernetes that the options or the configured target name."""

from __future__ import annotations

from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.options import SourceOptions
from latdoctor.cluster_api import Login
from latdoctor.collectors.base import KubernetesWorkloads
from latdoctor.collectors.kubernetes.workload_name import parse_workload
from latdoctor.errors import UsageError
from latdoctor.sanitize import clean


def workloads_of(sources: SourceOptions, settings: TargetSettings) -> KubernetesWorkloads | None:
    """None where there are none. Raises UsageError for a name of another form."""
    named = sources.kube or settings.kube
    if not named:
        for option, value in (("--kube-context", sources.kube_context), ("--kubeconfig", sources.kubeconfig)):
            if value:
                step = "name the workload, or leave it out"
                raise UsageError(f"{option} is for --kube NAMESPACE/NAME", next_step=step)
        return None
    where = "--kube" if sources.kube else f"target {settings.name}"
    names = dict.fromkeys(_name(text, where) for text in named)
    context = sources.kube_context or ("" if sources.kube else settings.kube_context)
    return KubernetesWorkloads(tuple(names), Login(sources.kubeconfig, context))


def _name(text: str, where: str) -> str:
    try:
        return str(parse_workload(text))
    except ValueError as error:
        step = "write it such as --kube prod/chat, or prod/statefulset/chat"
        raise UsageError(clean(str(error), 300), where=where, next_step=step) from error
