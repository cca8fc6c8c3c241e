"""One real cluster for all tests, and a namespace for each."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.errors import OperationError
from latdoctor.lab.cluster.control_plane import find_binaries
from tests.lab.cluster import shared_cluster
from tests.lab.cluster.objects import Namespace
from tests.waiting import comes_about

STARTED_WITHIN = 120.0


def must_have_binaries() -> None:
    """Absent locally the tests skip, absent in CI they fail."""
    pytest.importorskip("kubernetes")
    try:
        find_binaries()
    except OperationError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def _start(folder: Path) -> Path:
    """The kubeconfig of a cluster that ends with the last process that has `folder/users` open for writing."""
    ready = folder / "ready"
    if ready.exists() and Path(ready.read_text()).exists():
        return Path(ready.read_text())
    ready.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, shared_cluster.__file__, str(folder / "users"), str(ready)],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    assert comes_about(lambda: ready.exists() or process.poll() is not None, STARTED_WITHIN)
    assert ready.exists(), (folder / "log").read_text()
    threading.Thread(target=process.wait, daemon=True).start()  # no ResourceWarning for a process that outlives us
    return Path(ready.read_text())


def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the processes of one run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cluster"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def spare_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The spare nodes, for one test at a time."""
    with (_folder(tmp_path_factory) / "spare").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """That of the shared cluster."""
    must_have_binaries()
    folder = _folder(tmp_path_factory)
    users = folder / "users"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not users.exists():
            os.mkfifo(users)
        descriptor = os.open(users, os.O_RDWR)  # a writer, without waiting for a reader
        os.set_inheritable(descriptor, False)
        started = _start(folder)
    yield started
    os.close(descriptor)


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[ClusterApi]:
    one = ClusterApi(Login(kubeconfig))
    yield one
    one.close()


@pytest.fixture
def namespace(api: ClusterApi) -> Iterator[Namespace]:
    one = Namespace(api)
    yield one
    one.delete()
