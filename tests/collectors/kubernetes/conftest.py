"""The laboratory's cluster, with several workloads in one namespace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latdoctor.cluster_api import ClusterApi
from tests.collectors.kubernetes import workloads
from tests.lab.cluster.conftest import api, kubeconfig, namespace, spare_nodes
from tests.lab.cluster.objects import Namespace

__all__ = ["api", "kubeconfig", "namespace", "prod", "spare_nodes"]


@pytest.fixture(scope="module")
def prod(api: ClusterApi) -> Iterator[Namespace]:
    """A namespace with every workload of `workloads`, all created at once."""
    one = Namespace(api)
    workloads.create(one)
    yield one
    one.delete()
