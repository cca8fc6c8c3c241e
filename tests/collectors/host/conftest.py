"""One look at a made-up machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.host import collector as host
from tests.collectors.host.made_machines import Files, Machine, Seen

Watch = Callable[..., Seen]


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    def run(files: Files, *, pid: int | None = None, window: float = 10.0) -> Seen:
        root = tmp_path / "root"
        request = CollectRequest(host=True, pid=pid, window=window)
        collected = host.collect(request, Machine(root, files), root)
        assert collected.gaps == ()
        return Seen(host.READER.parse(collected.artifacts), collected.artifacts)

    return run
