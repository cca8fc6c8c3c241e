"""`latdoctor lab cluster`: a Kubernetes cluster on this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def cluster(
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=100, metavar="N", help="Number of nodes.")] = 3,
    zones: Annotated[int, typer.Option("--zones", min=1, max=26, metavar="N", help="Zones they are spread over.")] = 3,
    gpus: Annotated[int, typer.Option("--gpus", min=0, metavar="N", help="nvidia.com/gpu of each node.")] = 0,
    mig_slices: Annotated[
        int, typer.Option("--mig-slices", min=0, metavar="N", help="nvidia.com/mig-1g.5gb of each node.")
    ] = 0,
) -> None:
    """Run a Kubernetes cluster until Ctrl-C.

    Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler from the folder in KUBEBUILDER_ASSETS or
    from PATH. Its kubelet runs the command of each container as a process of this machine, with the Pod's loopback
    address in POD_IP. The images that can be pulled are lab/reference:1 to :3, which are releases of the reference
    server, and lab/workload:1 and :2, which run the command of the container.

    Exit codes: 0 stopped · 1 a program is missing or has ended · 2 usage.
    """
    from contextlib import suppress

    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.cli.lab import need_extra

    need_extra(("kubernetes",), "kubernetes")
    from latdoctor.lab.cluster.cluster import Cluster, ClusterSettings

    settings = ClusterSettings(nodes, zones, gpus, mig_slices)
    with suppress(KeyboardInterrupt), ended_by_sigterm(), Cluster(settings) as running:
        typer.echo(running.kubeconfig)
        typer.echo(f"{nodes} nodes are ready. Next: kubectl --kubeconfig {running.kubeconfig} get nodes")
        running.wait()
