"""The shared cluster of tests/lab/cluster, for the actions on Kubernetes."""

from pathlib import Path

import pytest

from latdoctor.cluster_api import Login
from tests.lab.cluster.conftest import api, kubeconfig, namespace

__all__ = ["api", "kubeconfig", "namespace"]


@pytest.fixture
def login(kubeconfig: Path) -> Login:
    return Login(kubeconfig)
