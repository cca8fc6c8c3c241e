"""Why a part of the evidence is missing, as a code: decisions use the code, people read the sentence beside it."""

from __future__ import annotations

import errno
from enum import StrEnum


class GapCode(StrEnum):
    """Why a source, or a part of it, yielded no value."""

    UNSPECIFIED = "unspecified"  # written by a version without codes, or with a code that this version does not know
    ABSENT = "absent"  # the source does not contain it: no such file, sample, table or field
    EMPTY = "empty"  # the source was read and contains nothing to measure
    NOTHING_COUNTED = "nothing-counted"  # its counter did not move: there was nothing to measure
    INSUFFICIENT = "insufficient"  # measured, but too few samples or observations, or only a bound
    UNREADABLE = "unreadable"  # damaged, truncated or malformed
    INCONSISTENT = "inconsistent"  # values that contradict each other or are impossible
    AMBIGUOUS = "ambiguous"  # values that cannot be assigned to one subject, unit or moment
    UNZONED = "unzoned"  # times without a time zone, taken as UTC
    UNSUPPORTED = "unsupported"  # a format, version or device that cannot report it
    PERMISSION = "permission"  # the user who runs latdoctor may not read it
    TOO_LARGE = "too-large"  # left out because of a limit on size or number
    STALE = "stale"  # the source does not cover the judged time
    BEFORE_BOOT = "before-boot"  # events of an earlier boot, long before the end of the log: not the present
    STOPPED = "stopped"  # it was available and went away within the window
    TIMEOUT = "timeout"  # no answer in time
    UNREACHABLE = "unreachable"  # no connection, or a connection that broke off
    CERTIFICATE = "certificate"  # the server's certificate is not trusted
    REFUSED = "refused"  # the server answered with an error
    UNAUTHENTICATED = "unauthenticated"  # the server does not accept the login, or no longer
    OVERLOADED = "overloaded"  # the server asks to come back later
    EXPIRED = "expired"  # the server dropped the state that was being read
    TERMINATING = "terminating"  # what was asked for is being deleted
    NOT_MATCHED = "not-matched"  # the user's address, pattern or selection fits nothing
    SYNTHETIC = "synthetic"  # generated, not recorded

    @classmethod
    def _missing_(cls, value: object) -> GapCode:
        """A code of a newer version."""
        return cls.UNSPECIFIED


def code_of_os_error(error: OSError) -> GapCode:
    """The code for a file that could not be opened or read."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return GapCode.PERMISSION
    return GapCode.ABSENT if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV) else GapCode.UNREADABLE
