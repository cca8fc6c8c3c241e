"""The .tar.zst of a bundle: packed, and unpacked with nothing of it trusted."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path
from typing import IO, cast

from latdoctor.errors import BundleError

MAX_MEMBERS = 10_000
MAX_TOTAL = 4 << 30  # bytes of all members
MAX_RATIO = (
    1000  # of their bytes to those of the archive, from ALWAYS_ALLOWED on: nearly equal pages of hours reach 100
)
ALWAYS_ALLOWED = 256 << 20
RIGHTS = "check its rights: it must be readable for you"
_CHUNK = 1 << 20
_LARGE = 64 << 20  # bytes, from which packing takes longer than collecting
_LEVEL, _FAST_LEVEL = 6, 1
_WINDOW = 1 << 27  # bytes that zstandard may ask for
_PACKED = 1 << 10  # read at once of an archive: little, as it may unfold to very much


class ForeignArchiveError(BundleError):
    """An archive that `latdoctor collect` cannot have written."""

    def __init__(self, what: str, where: str) -> None:
        next_step = "`latdoctor collect` writes no such archive: do not trust it, and collect the bundle again"
        super().__init__(what, where=where, next_step=next_step)


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(?:/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")


def safe_name(name: str) -> str:
    """`name`, if it stays below the folder. Raises BundleError."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise BundleError(f"the artifact name {name!r} is not allowed", next_step="collect the bundle again")
    return name


def is_cut_off(path: Path) -> bool:
    """Whether the file ends before its compressed data do; tar itself may not notice, or call it empty."""
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    try:
        with path.open("rb") as file:
            while block := file.read(_PACKED):
                reader.decompress(block)
                if reader.eof:
                    return False
    except (zstandard.ZstdError, OSError):
        return False  # damaged in another way, which is reported already
    return True


def pack(folder: Path, path: Path) -> None:
    """Writes the files below `folder` to the archive `path`, without owners and times. Raises OSError."""
    import zstandard

    members = sorted(one for one in folder.rglob("*") if one.is_file())
    level = _LEVEL if sum(one.stat().st_size for one in members) <= _LARGE else _FAST_LEVEL
    with (
        path.open("wb") as raw,
        zstandard.ZstdCompressor(level=level, write_checksum=True).stream_writer(raw) as packed,
        tarfile.open(fileobj=packed, mode="w|", bufsize=_CHUNK, format=tarfile.PAX_FORMAT) as archive,
    ):
        for member in members:
            archive.add(member, arcname=str(member.relative_to(folder)), filter=_anonymous)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    return info


def unpack(path: Path, folder: Path) -> None:
    """Writes the members of the archive `path` below `folder`. Raises BundleError."""
    import zstandard

    hint = "a bundle is a folder or a .tar.zst that `latdoctor collect` wrote"
    try:
        with path.open("rb") as raw, zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(raw) as plain:
            limit = min(MAX_TOTAL, max(ALWAYS_ALLOWED, MAX_RATIO * path.stat().st_size))
            _extract(cast("IO[bytes]", plain), folder, str(path), limit)
            # To the end, where zstandard's own checksum stands: the manifest has no other.
            for _ in range(limit // _CHUNK):
                if not plain.read(_CHUNK):
                    break
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise BundleError(f"not a readable .tar.zst: {error}", where=str(path), next_step=hint) from error
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path), next_step=RIGHTS) from error


def _extract(plain: IO[bytes], folder: Path, where: str, limit: int) -> None:
    total = 0
    with tarfile.open(fileobj=plain, mode="r|") as archive:
        for count, member in enumerate(archive, start=1):
            total += member.size
            if count > MAX_MEMBERS or total > limit:
                raise ForeignArchiveError(f"more than {MAX_MEMBERS} members or {limit >> 20} MiB", where)
            if not member.isfile():
                raise ForeignArchiveError(f"the member {member.name!r} is not a plain file", where)
            target = folder / safe_name(member.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            if content is not None:
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file, _CHUNK)
