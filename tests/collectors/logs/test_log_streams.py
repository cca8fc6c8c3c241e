"""Logs out of standard input and pipes: bounded in time and size, and never taken for complete where they are not."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from latdoctor.collectors import piped_input
from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs import log_source
from latdoctor.errors import SourceError

USB = b"[    1.000000] usb 1-1: new device\n"


class Clock:
    def now(self) -> float:
        return 1.74e9

    def sleep(self, seconds: float) -> None:
        raise AssertionError("reading needs no waiting")


@contextmanager
def piped(content: bytes, *, ends: bool = True) -> Iterator[int]:
    """The reading end of a pipe into which a thread writes `content`, and which it closes where it `ends`."""
    out, into = os.pipe()
    wrote = threading.Event()

    def write() -> None:
        with suppress(BrokenPipeError), open(into, "wb", closefd=False) as file:  # a reader may have had enough
            file.write(content)
        if ends:
            os.close(into)
        wrote.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield out
    finally:
        os.close(out)
        writer.join()
        if not ends:
            os.close(into)


def from_stdin(monkeypatch: pytest.MonkeyPatch, source: int, timeout: float = 5.0) -> CollectResult:
    with open(source, encoding="utf-8", closefd=False) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        return logs.READER.collect(CollectRequest(logs=(Path("-"),), timeout=timeout), Clock())


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    with piped(gzip.compress(USB * 5000) if packed else USB * 5000) as source:
        brought = from_stdin(monkeypatch, source)
    (one,) = brought.artifacts
    assert (one.name, one.group, one.source) == ("logs/stdin", "stdin", "stdin")
    assert not brought.gaps
    assert one.read() == USB * 5000
    assert ("log.xid", "node/stdin") in logs.READER.parse([one]).looked


def test_a_writer_that_never_ends_is_left_and_nothing_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(USB, ends=False) as source:
        brought = from_stdin(monkeypatch, source, timeout=0.05)
    (one,) = brought.artifacts
    assert "incomplete: no more data within 0.05 s" in brought.gaps[0].reason
    assert not logs.READER.parse([one]).looked


def test_a_pipe_of_the_shell_is_read(tmp_path: Path) -> None:
    fifo = tmp_path / "63"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(USB), daemon=True)
    writer.start()
    brought = logs.READER.collect(CollectRequest(logs=(fifo,)), Clock())
    writer.join()
    assert [(one.name, one.source, one.read()) for one in brought.artifacts] == [("logs/pipe-63", "pipe-63", USB)]


def test_of_a_long_stream_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "MAX_READ", 1 << 16)
    with piped(USB * 10_000) as source:
        brought = from_stdin(monkeypatch, source)
    (one,) = brought.artifacts
    assert len(one.read()) <= 1 << 16
    assert "only the last" in brought.gaps[0].reason
    assert not logs.READER.parse([one]).looked


def test_too_long_a_stream_is_refused() -> None:
    with piped(USB * 10_000) as source, pytest.raises(SourceError, match="is longer than 0 MiB"):
        piped_input._read(source, 5.0, 1 << 10, 1 << 12, "x")


def test_the_keyboard_and_a_closed_input_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin, said in ((None, "is closed"), (io.StringIO(), "is closed")):
        monkeypatch.setattr(sys, "stdin", stdin)
        (gap,) = logs.READER.collect(CollectRequest(logs=(Path("-"),)), Clock()).gaps
        assert said in gap.reason
        assert "dmesg | latdoctor" in gap.next_step
    master, keyboard = os.openpty()
    try:
        (gap,) = from_stdin(monkeypatch, keyboard).gaps
        assert "is the keyboard" in gap.reason
    finally:
        os.close(master)
        os.close(keyboard)
