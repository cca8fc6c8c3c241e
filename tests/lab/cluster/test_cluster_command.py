"""`latdoctor lab cluster` as a process: it prints the kubeconfig, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.cluster_api import ClusterApi, Login
from tests.lab.cluster.conftest import must_have_binaries
from tests.lab.cluster.objects import WORKLOAD, condition
from tests.waiting import comes_about

WITHIN = 120.0


@pytest.fixture
def cluster() -> Iterator[subprocess.Popen[str]]:
    must_have_binaries()
    command = [sys.executable, "-m", "latdoctor", "lab", "cluster", "--nodes", "2", "--zones", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        if process.poll() is None:
            process.kill()


def of_folder(folder: Path) -> list[str]:
    """The processes whose command line or environment names the folder of a cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                own = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended, or belongs to another user
            if str(folder).encode() in own:
                found.append(own[:400].decode(errors="replace"))
    return found


def test_it_starts_prints_the_kubeconfig_and_ends_at_ctrl_c_with_nothing_left(cluster: subprocess.Popen[str]) -> None:
    assert cluster.stdout is not None
    assert cluster.stderr is not None
    kubeconfig = Path(cluster.stdout.readline().strip())
    assert kubeconfig.is_file(), cluster.stderr.read()
    assert "2 nodes are ready" in cluster.stdout.readline()
    folder = kubeconfig.parent
    api = ClusterApi(Login(kubeconfig))
    nodes = api.get("/api/v1/nodes")["items"]
    assert [condition(node, "Ready") for node in nodes] == ["True", "True"]
    command = [sys.executable, "-S", str(WORKLOAD), f"end-file={folder / 'ended'}"]  # its command names the folder
    spec = {"containers": [{"name": "one", "image": "lab/workload:1", "command": command}]}
    api.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "one"}, "spec": spec})
    assert comes_about(lambda: any("end-file" in one for one in of_folder(folder)), WITHIN)
    api.close()
    cluster.send_signal(signal.SIGINT)
    assert cluster.wait(WITHIN) == 0, cluster.stderr.read()
    assert of_folder(folder) == []
    assert not folder.exists()
