"""Pages and logs out of a pipe are sources like files: they are read, and told where they could not be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import diagnosed, run

PAGE = 'nv_inference_request_success{model="m",version="1"} 100\nnv_inference_request_duration_us{model="m"} 7\n'
LOG = "[    1.000000] usb 1-1: new device\n"


@contextmanager
def piped(path: Path, content: str) -> Iterator[str]:
    """A pipe as a shell gives it for `<(command)`, whose command has left already."""
    os.mkfifo(path)
    held = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        path.write_text(content, encoding="utf-8")
        yield str(path)
    finally:
        os.close(held)


@pytest.mark.parametrize(
    ("option", "collector", "content"), [("--metrics", "prometheus", PAGE), ("--log", "logs", LOG)]
)
def test_a_pipe_alone_is_enough_for_a_diagnosis(option: str, collector: str, content: str, tmp_path: Path) -> None:
    with piped(tmp_path / "63", content) as pipe:
        document = diagnosed(option, pipe)
    (row,) = (row for row in document["coverage"] if row["collector"] == collector)
    assert row["artifacts"] == 1
    assert row["status"] in ("read", "partly")
    assert not any("end was not seen" in gap["reason"] for gap in document["gaps"])


def test_a_pipe_that_brings_no_page_is_told_by_its_name(tmp_path: Path) -> None:
    with piped(tmp_path / "63", "<html></html>") as pipe:
        outcome = run(["diagnose", "--metrics", pipe])
    assert outcome.code == 1
    assert "pipe-63: is HTML" in outcome.err
