"""Bundles: what is saved comes back, and what is not ours is refused."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from latdoctor.errors import BundleError
from latdoctor.evidence.baseline import Baseline, Remembered, decoded, load
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Gap, Window

BUNDLE = Bundle(
    context=Context("checkout-bot", slo_p99=0.5),
    window=Window(100.0, 110.0),
    artifacts=(
        Artifact("prometheus/0-first.prom", "prometheus", "0", "http://127.0.0.1:8002/metrics", 100.0, b"a 1\n"),
        Artifact("logs/kern.log", "logs", "0", "kern.log", 110.0, b"\x00\xff"),
    ),
    gaps=(Gap("nvml", "the library is not installed", ("gpu.count",), next_step="install the driver"),),
    baseline=Baseline("checkout-bot", "2026-01-01T00:00:00+00:00", (Remembered("latency.p99", "server/a", 0.1),)),
)


@pytest.mark.parametrize("name", ["look", "look.tar.zst"])
def test_a_saved_bundle_comes_back_whole(tmp_path: Path, name: str) -> None:
    save(BUNDLE, tmp_path / name, "0")
    with opened(tmp_path / name) as found:
        assert (found.context, found.window, found.gaps) == (BUNDLE.context, BUNDLE.window, BUNDLE.gaps)
        assert found.baseline == BUNDLE.baseline
        assert [(a.name, a.group, a.source, a.taken_at, a.read()) for a in found.artifacts] == [
            (a.name, a.group, a.source, a.taken_at, a.read()) for a in BUNDLE.artifacts
        ]


def test_equal_bundles_give_equal_archives(tmp_path: Path) -> None:
    save(BUNDLE, tmp_path / "a.tar.zst", "0")
    save(BUNDLE, tmp_path / "b.tar.zst", "0")
    assert (tmp_path / "a.tar.zst").read_bytes() == (tmp_path / "b.tar.zst").read_bytes()


def test_an_existing_bundle_is_never_overwritten(tmp_path: Path) -> None:
    save(BUNDLE, tmp_path / "look", "0")
    with pytest.raises(BundleError, match="already exists"):
        save(BUNDLE, tmp_path / "look", "0")


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "a/../../b", "", "a//b", "-x", "a\nb", ".hidden"])
def test_artifact_names_that_leave_the_bundle_are_refused(tmp_path: Path, name: str) -> None:
    evil = Bundle(Context("x"), Window(), (Artifact(name, "logs", "0", "x", 0.0, b""),))
    with pytest.raises(BundleError, match="not allowed"):
        save(evil, tmp_path / "look", "0")


def _break_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def _drop_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _change_artifact(folder: Path) -> None:
    (folder / "artifacts/logs/kern.log").write_bytes(b"other")


def _drop_artifact(folder: Path) -> None:
    (folder / "artifacts/logs/kern.log").unlink()


def _link_artifact(folder: Path) -> None:
    _drop_artifact(folder)
    (folder / "artifacts/logs/kern.log").symlink_to("/etc/hostname")


def _future_version(folder: Path) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": "1"', '"schema_version": "99"'))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_break_manifest, "damaged"),
        (_drop_manifest, "not a bundle"),
        (_change_artifact, "changed after"),
        (_drop_artifact, "missing"),
        (_link_artifact, "missing"),
        (_future_version, "version 99"),
    ],
)
def test_a_damaged_bundle_says_what_is_wrong(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    save(BUNDLE, tmp_path / "look", "0")
    damage(tmp_path / "look")
    with pytest.raises(BundleError, match=message), opened(tmp_path / "look"):
        pass


def _archive(path: Path, *members: tarfile.TarInfo) -> Path:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    path.write_bytes(zstandard.ZstdCompressor().compress(plain.getvalue()))
    return path


def _member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, size, "/etc/passwd"
    return member


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([_member("../evil")], "not allowed"),
        ([_member("/abs")], "not allowed"),
        ([_member("artifacts/link", tarfile.SYMTYPE)], "not a plain file"),
        ([_member("artifacts/hard", tarfile.LNKTYPE)], "not a plain file"),
        ([_member("artifacts/fifo", tarfile.FIFOTYPE)], "not a plain file"),
        ([_member(f"m{n}") for n in range(10_001)], "more than"),
        ([_member("manifest.json")], "damaged"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, members: list[tarfile.TarInfo], message: str) -> None:
    path = _archive(tmp_path / "evil.tar.zst", *members)
    with pytest.raises(BundleError, match=message), opened(path):
        pass


@pytest.mark.parametrize("content", [b"", b"not zstd", zstandard.ZstdCompressor().compress(b"not tar" * 200)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "look.tar.zst"
    path.write_bytes(content)
    with pytest.raises(BundleError), opened(path):
        pass


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    save(BUNDLE, tmp_path / "look.tar.zst", "0")
    whole = (tmp_path / "look.tar.zst").read_bytes()
    (tmp_path / "half.tar.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BundleError), opened(tmp_path / "half.tar.zst"):
        pass


@pytest.mark.parametrize("read", [lambda path: opened(path).__enter__(), load], ids=["bundle", "baseline"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, read: Callable[[Path], object]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BundleError, match="regular file"):
        read(pipe)


def test_nesting_without_end_is_no_traceback(tmp_path: Path) -> None:
    deep = b"[" * 1_000_000
    with pytest.raises(BundleError, match="not a baseline"):
        decoded(b'{"values": ' + deep, "here")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/manifest.json").write_bytes(b'{"artifacts": ' + deep)
    with pytest.raises(BundleError, match="damaged"), opened(tmp_path / "bundle"):
        pass
