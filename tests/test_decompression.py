"""Limit of what compressed files may unpack to, in each reader of them."""

from __future__ import annotations

import gzip
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from latdoctor import decompression
from latdoctor.collectors.logs import log_source
from latdoctor.collectors.torch_trace import json_stream
from latdoctor.decompression import unpacked_limit
from latdoctor.errors import BundleError, SourceError
from latdoctor.evidence import archive
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Window
from latdoctor.evidence.redaction.bundle import redacted
from latdoctor.evidence.redaction.redactor import Redactor
from latdoctor.gap_code import GapCode

MIB = 1 << 20
BOMB = gzip.compress(b"GET / 200\n" * MIB)  # 10 MiB by 50 kB
NOISE = random.Random(1)
ORDINARY = gzip.compress(b"".join(b"GET /%x 200\n" % NOISE.getrandbits(16) for _ in range(200_000)))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "ALWAYS_ALLOWED", MIB)


@pytest.mark.parametrize(
    ("packed", "most", "limit"),
    [(0, 1 << 30, MIB), (10_000, 1 << 30, MIB), (100_000, 1 << 30, 10_000_000), (100_000, MIB, MIB), (1 << 30, 7, 7)],
)
def test_limit_is_a_multiple_of_the_compressed_size(packed: int, most: int, limit: int) -> None:
    assert unpacked_limit(packed, most) == limit


def test_log_that_is_compressed_too_well_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(BOMB)
    with pytest.raises(SourceError, match="unpacks to more than") as refused:
        log_source.read(path, 1.0)
    assert refused.value.code is GapCode.TOO_LARGE
    path.write_bytes(ORDINARY)
    content = log_source.read(path, 1.0).content
    assert content == gzip.decompress(ORDINARY) if isinstance(content, bytes) else content.stat().st_size > MIB


def unpacked_bytes(content: bytes | Path) -> int:
    """How many bytes of a trace are read."""
    room, total = memoryview(bytearray(MIB)), 0
    with closing(json_stream.DecompressedSource(content, "trace")) as source:
        while count := source.read_into(room):
            total += count
    return total


@pytest.mark.parametrize("in_memory", [True, False])
def test_trace_that_is_compressed_too_well_is_refused(tmp_path: Path, in_memory: bool) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(ORDINARY)
    assert unpacked_bytes(ORDINARY if in_memory else path) == len(gzip.decompress(ORDINARY))
    path.write_bytes(BOMB)
    with pytest.raises(SourceError, match="that are read at most"):
        unpacked_bytes(BOMB if in_memory else path)


def bundle(content: bytes | Path) -> Bundle:
    artifact = Artifact("torch_trace/a.json.gz", "torch_trace", "a", "a.json.gz", 1.0, content)
    ordinary = replace(artifact, name="torch_trace/b.json.gz", content=ORDINARY)
    return Bundle(Context("checkout"), Window(0.0, 1.0), (artifact, ordinary), ())


def test_artifact_that_is_compressed_too_well_is_left_out_of_a_bundle() -> None:
    found = redacted(bundle(BOMB), Redactor())
    assert [one.name for one in found.artifacts] == ["torch_trace/b.json.gz"]
    (gap,) = found.gaps
    assert (gap.source, gap.code) == ("torch_trace", GapCode.TOO_LARGE)
    assert gap.reason.startswith("a.json.gz: it unpacks to more than")


def test_file_that_is_compressed_too_well_is_not_copied_into_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(BOMB)
    redactor = Redactor()
    made = redacted(bundle(tmp_path / "a.json.gz"), redactor)
    with pytest.raises(BundleError, match=r"a\.json\.gz: it unpacks to more than"):
        save(made, tmp_path / "bundle", "0", redactor)
    assert not (tmp_path / "bundle").exists()


def test_archive_that_is_compressed_too_well_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(bundle(ORDINARY), artifacts=(Artifact("logs/a", "logs", "a", "a", 1.0, b"\n" * (8 * MIB)),))
    save(made, tmp_path / "bundle.tar.zst", "0")
    with opened(tmp_path / "bundle.tar.zst") as whole:
        assert len(whole.artifacts[0].read()) == 8 * MIB
    monkeypatch.setattr(archive, "ALWAYS_ALLOWED", MIB)
    with pytest.raises(BundleError, match="more than 10000 members or 1 MiB"), opened(tmp_path / "bundle.tar.zst"):
        pass
