"""The model registry: a folder with one folder per version, holding a manifest and a file of weights.

    REGISTRY/v2/manifest.json        version, SHA-256, size, time, format, architecture
    REGISTRY/v2/weights.safetensors

A version is added as a whole (written beside, then renamed) and never changed. Only safetensors files are read: a
pickle can run code when it is loaded.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.errors import RequestRefused
from latdoctor.regular_file import read_regular
from latdoctor.sanitize import clean

MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"
SAFETENSORS = "safetensors"
MAX_MANIFEST_BYTES = 64 * 1024
MAX_WEIGHT_BYTES = 64 << 30
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")


class RefusalCode(StrEnum):
    """Why a version is not loaded. The values are metric labels and codes of responses."""

    UNKNOWN_VERSION = "unknown-version"
    BAD_MANIFEST = "bad-manifest"
    MISSING_FILE = "missing-file"
    WRONG_SIZE = "wrong-size"
    WRONG_CHECKSUM = "wrong-checksum"
    WRONG_FORMAT = "wrong-format"
    WRONG_TENSORS = "wrong-tensors"


class ModelRefused(RequestRefused):
    """A version that cannot be loaded; the version in use goes on."""

    def __init__(self, code: RefusalCode, detail: str, *, where: str = "") -> None:
        super().__init__(409, code, detail)
        self.code = code
        self.where = where


class ModelManifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What the registry says of a version. `size` in bytes; `architecture`: what the tensors are for."""

    version: Annotated[str, Meta(pattern=rf"^{_VERSION.pattern}$")]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Meta(ge=1, le=MAX_WEIGHT_BYTES)]
    created: datetime
    format: Annotated[str, Meta(max_length=40)] = SAFETENSORS
    architecture: Annotated[str, Meta(max_length=40)] = "intent-encoder"


class RegisteredVersion(Struct, frozen=True):
    """An entry of the registry's list. `refused`: why it cannot be loaded; None: its manifest and size are right."""

    version: str
    manifest: ModelManifest | None = None
    refused: RefusalCode | None = None


def read_manifest(registry: Path, version: str) -> ModelManifest:
    """The manifest of `version`. Raises ModelRefused."""
    if not _VERSION.fullmatch(version):
        raise ModelRefused(RefusalCode.UNKNOWN_VERSION, f"{clean(version, 60)!r} is not the name of a version")
    path = registry / version / MANIFEST
    try:
        content = read_regular(path, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        detail = f"the registry has no version {version!r}"
        raise ModelRefused(RefusalCode.UNKNOWN_VERSION, detail, where=str(registry)) from None
    except OSError as error:
        raise _bad_manifest(path, f"it cannot be read: {error.strerror}") from error
    try:
        manifest = msgspec.json.decode(content, type=ModelManifest)
    except UNDECODABLE as error:
        raise _bad_manifest(path, clean(str(error), 200)) from error
    if manifest.version != version:
        raise _bad_manifest(path, f"it is of version {manifest.version!r}")
    if manifest.format != SAFETENSORS:
        detail = f"the format of version {version} is {manifest.format!r}, and only {SAFETENSORS} is loaded"
        raise ModelRefused(RefusalCode.WRONG_FORMAT, detail, where=str(path))
    return manifest


def _bad_manifest(path: Path, detail: str) -> ModelRefused:
    return ModelRefused(RefusalCode.BAD_MANIFEST, f"the manifest is not valid: {detail}", where=str(path))


def open_weights(registry: Path, manifest: ModelManifest) -> int:
    """A descriptor of the version's file, which has the size of its manifest. Raises ModelRefused."""
    path = registry / manifest.version / WEIGHTS
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        detail = f"the weights of version {manifest.version} cannot be opened: {error.strerror}"
        raise ModelRefused(RefusalCode.MISSING_FILE, detail, where=str(path)) from error
    found = os.fstat(descriptor).st_size
    if found != manifest.size:
        os.close(descriptor)
        detail = f"the weights of version {manifest.version} have {found} bytes; the manifest says {manifest.size}"
        raise ModelRefused(RefusalCode.WRONG_SIZE, detail, where=str(path))
    return descriptor


def registered_versions(registry: Path) -> Sequence[RegisteredVersion]:
    """Every version in the folder, the newest first; without checking the weights themselves.

    Raises OperationError where the folder cannot be read.
    """
    try:
        names = sorted(entry.name for entry in registry.iterdir() if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise OperationError(f"the registry cannot be read: {error.strerror}", where=str(registry)) from error
    found = []
    for name in names:
        try:
            manifest = read_manifest(registry, name)
        except ModelRefused as refused:
            found.append(RegisteredVersion(clean(name, 60), None, refused.code))
            continue
        try:
            os.close(open_weights(registry, manifest))
        except ModelRefused as refused:
            found.append(RegisteredVersion(name, manifest, refused.code))
        else:
            found.append(RegisteredVersion(name, manifest))
    return sorted(found, key=lambda one: -one.manifest.created.timestamp() if one.manifest else 0.0)


def add_version(registry: Path, version: str, weights: bytes, architecture: str = "intent-encoder") -> ModelManifest:
    """Adds a version with these weights, a safetensors file.

    Raises UsageError for a bad name or a version that exists, OperationError where it cannot be written.
    """
    if not _VERSION.fullmatch(version):
        raise UsageError(
            f"{version!r} is not the name of a version", next_step="letters, digits and ._+-, at most 40 characters"
        )
    digest = hashlib.sha256(weights).hexdigest()
    created = datetime.now(UTC).replace(microsecond=0)
    manifest = ModelManifest(version, digest, len(weights), created, architecture=architecture)
    folder, beside = registry / version, registry / f".{version}-{secrets.token_hex(4)}"
    try:
        beside.mkdir(parents=True)
        _write(beside / WEIGHTS, weights)
        _write(beside / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        if folder.exists():
            raise UsageError(
                f"the registry already has version {version}", next_step="add it by another name"
            ) from error
        raise OperationError(f"the version cannot be written: {error.strerror}", where=str(folder)) from error
    return manifest


def _write(path: Path, content: bytes) -> None:
    """The whole file, on disk when this returns, and read-only from then on."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o444)
