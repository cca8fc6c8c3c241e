"""The weights of a registered version in memory, verified before anything uses them.

They are copied from the registry into a file in memory, and hashed on the way: what is used is what was verified, and a
file that is damaged, truncated or replaced later changes nothing. The network maps that memory file, so it holds no
second copy.

`private`: a memory file of this process alone. `shared`: one memory file for all processes of this user that use the
same weights, named by their SHA-256; the last process to use it removes it. What a killed process left behind is
removed by the next that loads.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from latdoctor.errors import OperationError
from latdoctor.lab.server.versions.model_registry import (
    ModelManifest,
    ModelRefused,
    RefusalCode,
    open_weights,
    read_manifest,
)

Sharing = Literal["private", "shared"]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of this user's own is made in it
_CHUNK = 4 << 20
_ATTEMPTS = 10  # to open a shared file that another process removes meanwhile


class VerifiedWeights:
    """A memory file with verified weights, kept for as long as this object. `shared_before`: another process had it."""

    def __init__(
        self, manifest: ModelManifest, descriptor: int, shared: Path | None = None, *, shared_before: bool = False
    ) -> None:
        self.manifest = manifest
        self.shared_before = shared_before
        self.path = f"/proc/self/fd/{descriptor}"  # to map it; another process cannot replace what it names
        self._close = weakref.finalize(self, _release, descriptor, shared)

    def close(self) -> None:
        """Mappings that exist stay valid."""
        self._close()


def load_weights(registry: Path, version: str, sharing: Sharing, memory: Path | None = None) -> VerifiedWeights:
    """The verified weights of `version`; `memory`: a tmpfs for shared ones.

    With `shared`, weights that another process has verified and holds are verified again in memory; the registry's
    file is then not read. Raises ModelRefused, and OperationError where there is no room in memory.
    """
    manifest = read_manifest(registry, version)
    source = open_weights(registry, manifest)
    try:
        if sharing == "private":
            return VerifiedWeights(manifest, _copied_into_memory(source, manifest))
        return _shared(source, manifest, _own_folder(memory or SHARED_MEMORY))
    except OSError as error:
        raise OperationError(f"the weights of version {version} found no memory: {error.strerror}") from error
    finally:
        os.close(source)


def _copied_into_memory(source: int, manifest: ModelManifest) -> int:
    descriptor = os.memfd_create("latdoctor-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _copy(source, descriptor, manifest)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _own_folder(memory: Path) -> Path:
    """This user's folder in `memory`. Raises OSError where it belongs to another user."""
    folder = memory / f"latdoctor-weights-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(1, "the folder of shared weights is not this user's alone", str(folder))
    return folder


def _shared(source: int, manifest: ModelManifest, folder: Path) -> VerifiedWeights:
    _remove_unused(folder, keep=manifest.sha256)
    path = folder / manifest.sha256
    for _ in range(_ATTEMPTS):
        descriptor = _opened(path)
        if descriptor is not None:
            if _digest(descriptor) == manifest.sha256:
                return VerifiedWeights(manifest, descriptor, path, shared_before=True)
            path.unlink(missing_ok=True)  # damaged: those that map it are warned by nothing, but no other gets it
            os.close(descriptor)
            continue
        made = folder / f".{secrets.token_hex(8)}"
        descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            _copy(source, descriptor, manifest)
            os.fchmod(descriptor, 0o400)
            os.link(made, path)
        except FileExistsError:  # another process was quicker
            os.close(descriptor)
            continue
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            made.unlink()
        return VerifiedWeights(manifest, descriptor, path)
    raise OperationError("the shared weights are replaced all the time", where=str(path), next_step="load them again")


def _opened(path: Path) -> int | None:
    """The shared file, locked against its removal; None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)  # removed between the two
    return None


def _remove_unused(folder: Path, keep: str = "") -> None:
    """Removes the files that no process uses; `keep`: not that one."""
    for path in folder.iterdir():
        if path.name == keep or path.name.startswith("."):
            continue
        with suppress(OSError):
            _release(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), path)


def _release(descriptor: int, shared: Path | None) -> None:
    """Closes it; a shared file that no other process uses is removed."""
    if shared is not None:
        with suppress(OSError):  # another process uses it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == shared.stat().st_ino:
                shared.unlink()
    os.close(descriptor)


def _copy(source: int, to: int, manifest: ModelManifest) -> None:
    """Copies and verifies. Raises ModelRefused."""

    def write(chunk: memoryview) -> None:
        while chunk:
            chunk = chunk[os.write(to, chunk) :]

    size, digest = _hashed(source, write, manifest.size)
    if size != manifest.size:
        detail = f"the weights of version {manifest.version} have {size} bytes; the manifest says {manifest.size}"
        raise ModelRefused(RefusalCode.WRONG_SIZE, detail)
    if digest != manifest.sha256:
        raise ModelRefused(
            RefusalCode.WRONG_CHECKSUM,
            f"the weights of version {manifest.version} have the SHA-256 {digest[:12]}…; "
            f"the manifest says {manifest.sha256[:12]}…",
        )


def _digest(descriptor: int) -> str:
    return _hashed(descriptor, lambda _: None, os.fstat(descriptor).st_size)[1]


def _hashed(source: int, each: Callable[[memoryview], None], most: int) -> tuple[int, str]:
    """The size and SHA-256 of a file from its beginning, up to `most` bytes; `each` gets every chunk."""
    digest, size = hashlib.sha256(), 0
    buffer = bytearray(_CHUNK)
    while size < most:
        count = os.preadv(source, [memoryview(buffer)[: most - size]], size)
        if not count:
            break
        chunk = memoryview(buffer)[:count]
        digest.update(chunk)
        each(chunk)
        size += count
    return size, digest.hexdigest()
