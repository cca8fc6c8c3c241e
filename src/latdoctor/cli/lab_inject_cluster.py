"""`latdoctor lab inject FAULT --kube NAMESPACE/NAME`: injects a fault into a service of the lab's cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from latdoctor.errors import UsageError
from latdoctor.http.safe_address import is_loopback


def inject_into_cluster(
    name: str, service: str, kubeconfig: Path | None, seconds: float, wait: Callable[[float], object]
) -> None:
    """Injects the fault, calls `wait` with its `seconds`, and reverts it.

    Raises UsageError for an unknown fault, a service that is not NAMESPACE/NAME and a cluster that is not on this
    machine; OperationError where the cluster does not do what it is asked.
    """
    from latdoctor.cli.console import notice_console
    from latdoctor.cluster_api import ClusterApi, Login
    from latdoctor.lab.cluster.cluster_faults import FaultSite, find_fault, find_service

    fault = find_fault(name)
    namespace, slash, workload = service.partition("/")
    if not (namespace and slash and workload) or "/" in workload:
        raise UsageError(f"must be NAMESPACE/NAME of a Deployment (got {service!r})", where="--kube")
    if kubeconfig is None:
        raise UsageError(
            "needs the cluster of the lab", next_step="--kubeconfig PATH, as `latdoctor lab cluster` prints it"
        )
    api = ClusterApi(Login(kubeconfig))
    try:
        if not is_loopback(urlsplit(api.address).hostname or ""):
            raise UsageError(
                "faults are for a cluster on this machine", where=api.address, next_step="latdoctor lab cluster"
            )
        with ExitStack() as undo:
            fault.inject(FaultSite(api, find_service(api, namespace, workload)), undo)
            notice_console().print(f"{fault.title}: for at most {seconds:g} s; Ctrl-C reverts it")
            wait(seconds)
    finally:
        api.close()
