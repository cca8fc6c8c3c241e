"""Reports that something of the machine or of its network refuses work: a full disk, names that do not resolve, expired
certificates, limits of processes, a storage server that does not answer.
"""

from __future__ import annotations

from enum import StrEnum

HOST_FAILURE = "log.host_failure"  # the event signal; its field `kind` is a HostFailure


class HostFailure(StrEnum):
    """What refuses work."""

    DISK_FULL = "disk-full"  # ENOSPC
    DISK_QUOTA = "disk-quota"  # EDQUOT
    CONNTRACK_FULL = "conntrack-full"  # the kernel tracks no further connection and drops its packets
    PORTS_EXHAUSTED = "ports-exhausted"  # EADDRNOTAVAIL of a connect
    NAME_RESOLUTION = "name-resolution"  # a resolver failed or gave no answer
    NAME_UNKNOWN = "name-unknown"  # a resolver answered that there is no such name
    CERTIFICATE_EXPIRED = "certificate-expired"
    CLOCK_SKEW = "clock-skew"  # a token or a certificate is from the future
    OPEN_FILES = "open-files"  # EMFILE, ENFILE
    THREADS = "threads"  # EAGAIN of clone: a limit of processes or of threads
    STORAGE_UNRESPONSIVE = "storage-unresponsive"  # a file server does not answer, a disk request timed out
    TASK_BLOCKED = "task-blocked"  # a task was in uninterruptible sleep for minutes
    STORAGE_ERROR = "storage-error"  # reading or writing failed
