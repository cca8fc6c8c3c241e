"""Bundles on disk: a folder with `manifest.json` and `artifacts/`, or the same as a .tar.zst.

Nothing in a bundle is trusted: names that leave the folder, links, too many or too large members are refused, and
every artifact must have the digest that the manifest states."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import BundleError
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.archive import RIGHTS, ForeignArchiveError, is_cut_off, pack, safe_name, unpack
from latdoctor.evidence.bundle import Artifact, Bundle, Context, Redaction
from latdoctor.evidence.model import Gap, Origin, Window
from latdoctor.output_file import cannot_write, must_be_writable, stands
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.evidence.redaction.redactor import Redactor

SCHEMA_VERSION = "1"


MAX_MANIFEST = 16 << 20


_CHUNK = 1 << 20


_LONGEST = 10_000  # characters of a gap's texts


_ZSTD = b"\x28\xb5\x2f\xfd"  # how a zstandard frame begins (RFC 8878, 3.1.1)


_AGAIN = "copy it again from where it was collected, or collect it anew"


_OTHER_FILES = {  # what is given in a bundle's place, by the ends of the name
    "a trace": ("--trace", (".json", ".json.gz")),
    "a metrics page": ("--metrics", (".prom", ".metrics", ".txt")),
    "an Nsight Systems export": ("--nsys", (".sqlite", ".csv")),
    "a memory snapshot": ("--torch-memory", (".pickle", ".pkl")),
    "a log": ("--log", (".log", ".log.gz")),
}


class _Entry(Struct, frozen=True, omit_defaults=True):
    name: str
    collector: str
    group: str
    source: str
    taken_at: float
    bytes: int
    sha256: str
    modified_at: float | None = None


class _Manifest(Struct, frozen=True, omit_defaults=True):
    schema_version: str
    tool_version: str
    context: Context
    window: Window
    artifacts: tuple[_Entry, ...]
    gaps: tuple[Gap, ...]
    redaction: Redaction | None = None  # older bundles lack it: nothing of them was redacted


def save(bundle: Bundle, path: Path, tool_version: str, redactor: Redactor | None = None) -> Redaction | None:
    """Writes `bundle` to `path`: a .tar.zst where the name ends so, else a new folder. What was redacted by then.

    `redactor` is the one that redacted `bundle`; it redacts its files too. It appears whole or not at all. BundleError.
    """
    must_be_new(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".latdoctor-", dir=path.parent) as scratch:
            made = Path(scratch) / "bundle"
            made.mkdir()
            known = _write_folder(bundle, made, tool_version, redactor)
            if path.name.endswith(".tar.zst"):
                pack(made, Path(scratch) / "packed")
                made = Path(scratch) / "packed"
            made.rename(path)
            return known
    except OSError as error:
        raise cannot_write(path, "the bundle", error) from error


def must_be_new(path: Path) -> None:
    """Raises BundleError where `path` is taken or cannot be written: checked before the collection starts."""
    if stands(path):
        raise BundleError("already exists", where=str(path), next_step="choose another name for the bundle")
    must_be_writable(path, "the bundle")


def _write_folder(bundle: Bundle, folder: Path, tool_version: str, redactor: Redactor | None) -> Redaction | None:
    entries = []
    whole: list[str] = []  # that could not be redacted after all
    for artifact in bundle.artifacts:
        target = folder / "artifacts" / safe_name(artifact.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(artifact.content, bytes):
            target.write_bytes(artifact.content)
        elif not _copy(artifact, artifact.content, target, redactor):
            whole.append(artifact.name)
        size, digest = _digest(target)
        named = (artifact.name, artifact.collector, artifact.group, artifact.source, artifact.taken_at)
        entries.append(_Entry(*named, size, digest, artifact.modified_at))
    known = bundle.redaction
    if known and redactor:
        known = Redaction(dict(redactor.counts), (*known.unread, *whole))
    manifest = _Manifest(
        SCHEMA_VERSION, tool_version, bundle.context, bundle.window, tuple(entries), bundle.gaps, known
    )
    encoded = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1)
    (folder / "manifest.json").write_bytes(encoded)
    if bundle.baseline is not None:
        (folder / "baseline.json").write_bytes(baselines.encoded(bundle.baseline))
    return known


def _copy(artifact: Artifact, file: Path, target: Path, redactor: Redactor | None) -> bool:
    """False where it should have been redacted and stays whole (a damaged database).

    Raises BundleError where it is the file, and not the bundle, that refuses.
    """
    from latdoctor.evidence.redaction import sqlite
    from latdoctor.evidence.redaction.bundle import copied

    try:
        is_database = redactor is not None and sqlite.is_database(file)
        if redactor is not None and is_database and sqlite.copied(file, target, redactor):
            return True
        source = file.open("rb")
    except OSError as error:
        raise BundleError(
            f"cannot be read: {error.strerror}", where=str(file), next_step="check path and rights"
        ) from error
    with source, target.open("wb") as copy:
        if redactor is None:
            shutil.copyfileobj(source, copy, _CHUNK)
        else:
            try:
                copy.writelines(copied(artifact, source, redactor))
            except BundleError as error:
                raise BundleError(error.what, where=str(file), next_step=error.next_step) from error
    return not is_database


@contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """The bundle at `path`, a folder or a .tar.zst; what is unpacked lives as long as the context. BundleError."""
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path), next_step=RIGHTS) from error
    if is_folder:
        yield _read_folder(path, str(path))
        return
    if not stands(path):
        raise BundleError("no such file or folder", where=str(path), next_step=_path_hint(path))
    if not path.is_file():  # a pipe would keep us waiting
        raise BundleError("neither a folder nor a regular file", where=str(path), next_step=_path_hint(path))
    _must_be_zstd(path)
    with tempfile.TemporaryDirectory(prefix="latdoctor-") as scratch:
        yield _unpacked(path, Path(scratch))


def _path_hint(path: Path) -> str:
    if path.parts[:1] in (("http:",), ("https:",)):  # what a Path makes of http://
        return "if it is a server, give it with --server: latdoctor diagnose --server URL"
    return "check the path of the bundle"


def _unpacked(path: Path, folder: Path) -> Bundle:
    try:
        unpack(path, folder)
        return _read_folder(folder, str(path))
    except ForeignArchiveError:
        raise
    except BundleError as error:
        if is_cut_off(path):
            raise BundleError("the archive is cut off", where=str(path), next_step=_AGAIN) from error
        raise


def _must_be_zstd(path: Path) -> None:
    """Says what to do with a file that is no archive at all. Raises BundleError."""
    try:
        with path.open("rb") as file:
            if file.read(len(_ZSTD)) == _ZSTD:
                return
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path), next_step=RIGHTS) from error
    hint = "a bundle is a folder or a .tar.zst that `latdoctor collect` wrote"
    for what, (option, endings) in _OTHER_FILES.items():
        if path.name.endswith(endings):
            hint = f"if it is {what}, give it with {option}: latdoctor diagnose {option} {path}"
    raise BundleError("not a bundle", where=str(path), next_step=hint)


def _read_folder(folder: Path, where: str) -> Bundle:
    manifest = _read_manifest(folder / "manifest.json", where)
    artifacts = tuple(_artifact(entry, folder, where) for entry in manifest.artifacts)
    remembered = folder / "baseline.json"
    return Bundle(
        context=replace(manifest.context, target=clean(manifest.context.target)),
        window=manifest.window,
        artifacts=artifacts,
        gaps=tuple(_harmless(gap) for gap in manifest.gaps),
        baseline=baselines.load(remembered) if remembered.is_file() else None,
        redaction=manifest.redaction,
    )


def _harmless(gap: Gap) -> Gap:
    """The manifest is untrusted: its texts are made safe to print."""
    subject = None if gap.subject is None else clean(gap.subject)
    reason, next_step = clean(gap.reason, _LONGEST), clean(gap.next_step, _LONGEST)
    origin = gap.origin and Origin(clean(gap.origin.artifact), clean(gap.origin.place))
    return Gap(
        clean(gap.source), reason, tuple(clean(name) for name in gap.signals), subject, next_step, origin, gap.code
    )


def _read_manifest(path: Path, where: str) -> _Manifest:
    hint = "a bundle is what `latdoctor collect` writes; give a metrics page with --metrics, a trace with --trace"
    try:
        if path.is_symlink() or path.stat().st_size > MAX_MANIFEST:
            raise BundleError("its manifest.json is a link or too large", where=where, next_step=_AGAIN)
        manifest = msgspec.json.decode(path.read_bytes(), type=_Manifest)
    except PermissionError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=where, next_step=RIGHTS) from error
    except OSError as error:
        raise BundleError("not a bundle: it has no manifest.json", where=where, next_step=hint) from error
    except UNDECODABLE as error:
        raise BundleError(f"its manifest.json is damaged: {error}", where=where, next_step=_AGAIN) from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise BundleError(
            f"bundle of version {manifest.schema_version}, {SCHEMA_VERSION} is read",
            where=where,
            next_step="diagnose it with the latdoctor that collected it",
        )
    return manifest


def _artifact(entry: _Entry, folder: Path, where: str) -> Artifact:
    path = folder / "artifacts" / safe_name(entry.name)
    if path.is_symlink() or not path.is_file():
        raise BundleError(f"the artifact {entry.name} is missing", where=where, next_step=_AGAIN)
    if _digest(path) != (entry.bytes, entry.sha256):
        raise BundleError(
            f"the artifact {entry.name} was changed after it was collected", where=where, next_step=_AGAIN
        )
    group, source = clean(entry.group), clean(entry.source)
    return Artifact(entry.name, entry.collector, group, source, entry.taken_at, path, entry.modified_at)


def _digest(path: Path) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()
