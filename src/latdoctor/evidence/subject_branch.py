"""What the evidence says of one subject by itself: with its parts and what it runs on, without its siblings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from latdoctor.evidence.model import Evidence, kind_of


def subjects(evidence: Evidence) -> Sequence[str]:
    """Every subject that something is known of, and what they belong to; sorted."""
    named = {one.subject for one in evidence.readings} | {one.subject for one in evidence.series}
    named |= {one.subject for one in evidence.distributions} | {one.subject for one in evidence.events}
    named |= {subject for _, subject in evidence.looked}
    return sorted({owner for subject in named for owner in evidence.lineage(subject)})


def branch(evidence: Evidence, subject: str) -> Evidence:
    """The pieces on the line of `subject`: its own, its parts', those of what it is part of, and general gaps."""
    above = set(evidence.lineage(subject))

    def own(name: str) -> bool:
        return name in above or subject in evidence.lineage(name)

    return Evidence(
        subjects=tuple(one for one in evidence.subjects if own(one.id)),
        readings=tuple(one for one in evidence.readings if own(one.subject)),
        series=tuple(one for one in evidence.series if own(one.subject)),
        distributions=tuple(one for one in evidence.distributions if own(one.subject)),
        events=tuple(one for one in evidence.events if own(one.subject)),
        looked=tuple(one for one in evidence.looked if own(one[1])),
        gaps=tuple(one for one in evidence.gaps if one.subject is None or own(one.subject)),
        clipped=tuple(one for one in evidence.clipped if own(one[1])),
        queries=tuple(one for one in evidence.queries if own(one.subject)),
        services=tuple(one for one in evidence.services if own(one[0])),
        machines=tuple(one for one in evidence.machines if own(one.subject)),
    )


def cluster_of(evidence: Evidence, subject: str) -> str:
    """The name of the cluster that an object of Kubernetes is known to be of; empty where that is not known."""
    owner = next((one for one in evidence.lineage(subject) if kind_of(one) == "cluster"), "")
    return owner.partition("/")[2]


_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,4}):([0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?")
_UUID = re.compile(r"(?:GPU-)?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})", re.IGNORECASE)
_NOBODY = "00000000-0000-0000-0000-000000000000"  # what stands where it was taken out


def normalise_pci(text: str) -> str:
    """`00000000:9B:00.0`, `PCI:0000:9b:00` or `9b:00` → `0000:9b:00`: what the kernel and NVML name alike.

    Raises ValueError where `text` is no PCI address.
    """
    found = _PCI.fullmatch(text.removeprefix("PCI:"))
    if not found:
        raise ValueError(f"{text!r} is not a PCI address")
    domain, bus, device = found.groups()
    if domain is None and len(bus) > 2:  # very old drivers: domain and bus, no device
        domain, bus, device = bus, device, "00"
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{device.lower()}"


def pci_of(text: str) -> str:
    """The normalised address; empty where `text` is none."""
    try:
        return normalise_pci(text)
    except ValueError:
        return ""


def uuid_of(text: str) -> str:
    """The UUID in small letters without what stands before it; empty where `text` is none, or a pseudonym."""
    found = _UUID.fullmatch(text)
    known = found[1].lower() if found else ""
    return "" if known == _NOBODY else known
