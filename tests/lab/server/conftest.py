"""A server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.server.running_server import Running


@pytest.fixture
def server() -> Iterator[Running]:
    with Running() as running:
        yield running
