"""The real control plane on free loopback ports: etcd, kube-apiserver, kube-controller-manager and kube-scheduler."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from latdoctor.cluster_api import ApiError, ClusterApi, Login
from latdoctor.errors import OperationError
from latdoctor.lab.server import parent_watch
from latdoctor.lab.server.supervisor import free_ports
from latdoctor.sanitize import clean

ASSETS = "KUBEBUILDER_ASSETS"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
READY_WITHIN = 120.0  # seconds: 7 on a machine that does nothing else
# Without `endpoint`: Endpoints refuse the loopback addresses of Pods, EndpointSlices do not.
_CONTROLLERS = (
    "deployment", "replicaset", "statefulset", "daemonset", "job", "horizontalpodautoscaling", "disruption",
    "resourcequota", "endpointslice", "nodelifecycle", "podgc", "garbagecollector", "namespace",
)  # fmt: skip
_HOW_TO_INSTALL = (
    "apt-get download etcd-server && dpkg -x etcd-server_*.deb . && curl -L "
    "https://dl.k8s.io/v1.20.2/kubernetes-server-linux-amd64.tar.gz | tar xz; "
    f"then put the programs into one folder and name it in {ASSETS}"
)


@dataclass(frozen=True, slots=True)
class NodeTiming:
    """Seconds from a node's last heartbeat to NotReady, and from there to the eviction of its Pods."""

    not_ready_after: int = 40
    evicted_after: int = 300


@dataclass(frozen=True, slots=True)
class AutoscalerTiming:
    """Seconds between two looks of the autoscaler at its metric, and for which it waits before it scales in."""

    sync: int = 15
    downscale_stabilization: int = 300


def find_binaries() -> dict[str, str]:
    """The programs of the control plane, of the folder in KUBEBUILDER_ASSETS or of PATH. Raises OperationError."""
    folder = os.environ.get(ASSETS, "")
    path = os.pathsep.join(part for part in (folder, os.environ.get("PATH", "")) if part)
    found = {name: shutil.which(name, path=path) for name in (*BINARIES, "openssl")}
    missing = [name for name, place in found.items() if place is None]
    if missing:
        where = f"{ASSETS}={folder}" if folder else f"{ASSETS} is not set"
        raise OperationError(
            f"the control plane needs {', '.join(missing)}, which neither {ASSETS} nor PATH has",
            where=where,
            next_step=_HOW_TO_INSTALL,
        )
    return {name: place for name, place in found.items() if place is not None}


class Component:
    """A program of the control plane in its own session, with its log; it ends with the thread that started it."""

    def __init__(self, program: str, arguments: list[str], log: Path) -> None:
        self.name, self._log = Path(program).name, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 (a program of the folder that the operator named)
                parent_watch.watched(program, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def must_run(self) -> None:
        """Raises OperationError where it has ended."""
        if self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise OperationError(f"{self.name} has ended: {clean(lines[-1], 300) if lines else 'no output'}")

    def close(self) -> None:
        """Kills it: nothing is to be saved."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class ControlPlane:
    """A context manager that starts the control plane, waits until it is ready, and ends it.

    `kubeconfig` has an administrator's token; the folder with it is removed at the end.
    """

    def __init__(self, timing: NodeTiming | None = None, autoscaler: AutoscalerTiming | None = None) -> None:
        self._timing = timing or NodeTiming()
        self._autoscaler = autoscaler or AutoscalerTiming()
        self._programs = find_binaries()
        self._ends = ExitStack()
        self.components: tuple[Component, ...] = ()
        self.folder = Path()

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def openssl(self) -> str:
        """The path of the program."""
        return self._programs["openssl"]

    def __enter__(self) -> Self:
        """Raises OperationError where a component ends, or is not ready in time."""
        with self._ends:
            self.folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="latdoctor-cluster-")))
            store, peers, api = free_ports(3)
            self._write_files(api)
            self._start("etcd", _etcd(store, peers, self.folder))
            self._start("kube-apiserver", self._api_server(store, api))
            self._wait_ready()
            (metrics,) = free_ports(1)
            self._start("kube-controller-manager", self._controller_manager(metrics))
            scheduler = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0", "--secure-port=0"]
            self._start("kube-scheduler", scheduler)
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def must_run(self) -> None:
        """Raises OperationError where a component has ended."""
        for one in self.components:
            one.must_run()

    def _start(self, name: str, arguments: list[str]) -> None:
        component = Component(self._programs[name], arguments, self.folder / f"{name}.log")
        self._ends.callback(component.close)
        self.components += (component,)

    def _write_files(self, port: int) -> None:
        token = secrets.token_urlsafe(24)
        certificates = self.folder / "certificates"
        (self.folder / "tokens.csv").write_text(f'{token},administrator,1,"system:masters"\n')
        subprocess.run(  # noqa: S603 (found in PATH)
            [self._programs["openssl"], "genrsa", "-out", str(self.folder / "accounts.key"), "2048"],
            check=True,
            capture_output=True,
        )
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(certificates / "apiserver.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "administrator", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "administrator"}}],
            "current-context": "lab",
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(config, indent=1))  # JSON is YAML

    def _api_server(self, store: int, port: int) -> list[str]:
        key = self.folder / "accounts.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{store}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://127.0.0.1",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",  # Pods here mount no token
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=InternalIP",  # the names of the nodes are of no resolver
            f"--default-not-ready-toleration-seconds={self._timing.evicted_after}",
            f"--default-unreachable-toleration-seconds={self._timing.evicted_after}",
        ]

    def _controller_manager(self, port: int) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            "--port=0",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'certificates-of-controllers'}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--controllers={','.join(_CONTROLLERS)}",
            f"--horizontal-pod-autoscaler-sync-period={self._autoscaler.sync}s",
            f"--horizontal-pod-autoscaler-downscale-stabilization={self._autoscaler.downscale_stabilization}s",
            f"--node-monitor-grace-period={self._timing.not_ready_after}s",
            f"--node-monitor-period={min(5, max(1, self._timing.not_ready_after // 8))}s",
        ]

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN
        why = "it has written no certificate"
        while time.monotonic() < deadline:
            self.must_run()
            if (self.folder / "certificates" / "apiserver.crt").is_file():
                try:
                    api = ClusterApi(Login(self.kubeconfig))
                    api.get("/api/v1/namespaces/default")  # made by the last of the hooks after the start
                    api.close()
                    return
                except ApiError as error:
                    why = str(error)
            time.sleep(0.1)
        raise OperationError(f"kube-apiserver was not ready within {READY_WITHIN:g} s: {why}")


def _etcd(port: int, peers: int, folder: Path) -> list[str]:
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{port}",
        f"--advertise-client-urls=http://127.0.0.1:{port}",
        f"--listen-peer-urls=http://127.0.0.1:{peers}",
        "--unsafe-no-fsync",
    ]
