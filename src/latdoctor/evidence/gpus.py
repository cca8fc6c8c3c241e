"""How a GPU is told from others: its UUID, everywhere the same, and its PCI address, the same on one machine only."""

from __future__ import annotations

import re

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
    told = found[1].lower() if found else ""
    return "" if told == _NOBODY else told
