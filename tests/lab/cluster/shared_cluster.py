"""A cluster for several test processes: `python shared_cluster.py FIFO READY` ends when the last writer of FIFO has.

One control plane is shared because three of them, one for each worker of pytest-xdist, would be slow.
"""

from __future__ import annotations

import sys
from pathlib import Path

from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.lab.cluster.cluster import Cluster, ClusterSettings
from latdoctor.lab.cluster.control_plane import AutoscalerTiming, NodeTiming

SETTINGS = ClusterSettings(
    nodes=5,
    zones=5,
    gpus=2,
    mig_slices=7,
    backoff=1.0,
    heartbeat=1.0,
    timing=NodeTiming(not_ready_after=8, evicted_after=1),
    autoscaler=AutoscalerTiming(sync=1),
)


# Nodes in zones of their own that a test may lose: no Pod of another test is there.
SPARE = ("node-3", "node-4")
SPARE_LABEL = "test/spare"


def main(fifo: Path, ready: Path) -> None:
    with Cluster(SETTINGS) as cluster:
        api = ClusterApi(Login(cluster.kubeconfig))
        for name in SPARE:
            taint = {"key": SPARE_LABEL, "value": "true", "effect": "NoSchedule"}
            api.patch(
                f"/api/v1/nodes/{name}", {"metadata": {"labels": {SPARE_LABEL: "true"}}, "spec": {"taints": [taint]}}
            )
        api.close()
        written = ready.with_suffix(".part")
        written.write_text(str(cluster.kubeconfig))
        written.rename(ready)
        fifo.read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
