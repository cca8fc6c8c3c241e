"""A cluster for several test processes: `python shared_cluster.py FIFO READY` ends when the last writer of FIFO has.

One control plane is shared because three of them, one for each worker of pytest-xdist, would be slow.
"""

from __future__ import annotations

import sys
from pathlib import Path

from latdoctor.lab.cluster.cluster import Cluster, ClusterSettings
from latdoctor.lab.cluster.control_plane import NodeTiming

SETTINGS = ClusterSettings(
    nodes=3,
    zones=3,
    gpus=2,
    mig_slices=7,
    backoff=1.0,
    heartbeat=1.0,
    timing=NodeTiming(not_ready_after=8, evicted_after=1),
)


def main(fifo: Path, ready: Path) -> None:
    with Cluster(SETTINGS) as cluster:
        written = ready.with_suffix(".part")
        written.write_text(str(cluster.kubeconfig))
        written.rename(ready)
        fifo.read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
