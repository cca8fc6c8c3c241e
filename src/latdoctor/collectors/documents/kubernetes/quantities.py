"""Times, counts and devices as Kubernetes writes them: `3d4h`, `x5 over 20m`, RFC 1123 and RFC 3339 times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

_AGE = re.compile(r"(?:(\d{1,4})y)?(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,8})s)?")
_AGE_SECONDS = (365 * 86400, 86400, 3600, 60, 1)
_REPEATED = re.compile(r"(\S+)\s+\(x(\d{1,9})\s+over\s+(\S+?)\)")
_GPU = re.compile(
    r"(?:[a-z0-9.-]*nvidia\.com/(?:gpu|mig-)|amd\.com/gpu|gpu\.intel\.com/|habana\.ai/|google\.com/tpu"
    r"|aws\.amazon\.com/neuron|huawei\.com/ascend|metax-tech\.com/gpu|volcano\.sh/(?:v?gpu))",
    re.IGNORECASE,
)


class Occurrence(Struct, frozen=True):
    """How long ago something happened last and first, seconds, and how often; None where unknown."""

    last: float | None
    first: float | None
    count: int | None


def age(text: str) -> float | None:
    """`3d4h`, `12m`, `2y45d` in seconds; None for `<unknown>`."""
    found = _AGE.fullmatch(text.strip())
    if not found or not found[0]:
        return None
    return float(sum(int(part or 0) * seconds for part, seconds in zip(found.groups(), _AGE_SECONDS, strict=True)))


def occurrence(text: str) -> Occurrence:
    """`3m12s (x5 over 20m)`, or an age alone."""
    found = _REPEATED.fullmatch(text.strip())
    if found:
        return Occurrence(age(found[1]), age(found[3]), int(found[2]))
    last = age(text)
    return Occurrence(last, last, None)


def moment(text: str) -> float | None:
    """An absolute time, unix seconds: `Tue, 18 Nov 2025 17:37:06 +0000` or `2025-11-18T17:37:06Z`; None otherwise."""
    text = text.strip()
    if not text[:1].isalnum() or len(text) > 40:
        return None
    try:
        if text[0].isdigit():
            found = datetime.fromisoformat(text.removesuffix(" UTC"))
        else:
            found = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None


def is_gpu(resource: str) -> bool:
    """Whether the resource is an accelerator: `nvidia.com/gpu`, a MIG slice, `amd.com/gpu`, a TPU."""
    return _GPU.match(resource.strip().removeprefix("requests.").removeprefix("limits.")) is not None
