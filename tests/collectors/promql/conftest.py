"""One real Prometheus for all tests of this folder; nobody writes to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.collectors.promql.history import openmetrics
from tests.collectors.promql.real import prometheus


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus server that keeps the hour of history.py."""
    with prometheus(tmp_path_factory.mktemp("prometheus"), openmetrics()) as url:
        yield url
