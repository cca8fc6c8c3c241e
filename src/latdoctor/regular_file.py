"""Bounded reads of regular files only: a FIFO, device or socket under an expected name neither blocks nor acts."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "it is a pipe, not a file",
    stat.S_IFCHR: "it is a device, not a file",
    stat.S_IFBLK: "it is a device, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
}


def read_regular(path: Path, limit: int) -> bytes:
    """The first `limit` + 1 bytes of `path`, so that a longer file is recognised. Raises OSError."""
    return read_with_status(path, limit)[0]


def read_with_status(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    """As `read_regular`, with the status of the file that was read. Raises OSError."""
    # O_NONBLOCK: opening a FIFO without a writer would wait for one.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, _KINDS.get(kind, "it is not a regular file"), str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit + 1), found
    finally:
        os.close(descriptor)


def written_by_others(found: os.stat_result) -> str:
    """Why the content of a file or folder is not the present user's own; empty where it is. Root counts as the user."""
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {found.st_uid}"
    return "can be written by other users" if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def read_by_others(found: os.stat_result) -> bool:
    """Whether its group or all users can read the file."""
    return bool(found.st_mode & (stat.S_IRGRP | stat.S_IROTH))
