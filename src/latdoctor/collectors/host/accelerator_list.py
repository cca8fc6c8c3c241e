"""The accelerators that the kernel shows: PCI functions and device nodes.

Sysfs shows those of the whole machine, in a container as well. Where there is no PCI function (WSL, Jetson), a device
node is there. A display function of other vendors is mostly part of the processor and counts for nothing.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

PCI = "/sys/bus/pci/devices"
DEVICES = "/dev"

_MAX_ENTRIES = 4096
_DISPLAY, _PROCESSING = "0x03", "0x12"  # base classes of PCI functions
_GPU_VENDORS = ("0x10de", "0x1002")  # NVIDIA, AMD
_NODE = re.compile(r"nvidia\d+|nvidiactl|kfd|dxg|nvhost-\S+|nvgpu|accel\d*|neuron\d+|hl\d+|davinci\d+")


def accelerator_lists(root: Path) -> dict[str, str]:
    """The text for PCI and for DEVICES: a line for each accelerator. Raises OSError where a folder cannot be listed."""
    return {
        PCI: "".join(f"{line}\n" for line in _functions(root / PCI.lstrip("/"))),
        DEVICES: "".join(f"{name}\n" for name in _nodes(root / DEVICES.lstrip("/"))),
    }


def _functions(folder: Path) -> Iterator[str]:
    """`ADDRESS VENDOR CLASS` of each PCI function that computes."""
    for entry in _entries(folder):
        vendor, kind = ((entry / name).read_text("ascii", "replace").strip()[:10] for name in ("vendor", "class"))
        if kind.startswith(_PROCESSING) or (kind.startswith(_DISPLAY) and vendor in _GPU_VENDORS):
            yield f"{entry.name[:20]} {vendor} {kind}"


def _nodes(folder: Path) -> Iterator[str]:
    for entry in _entries(folder):
        if _NODE.fullmatch(entry.name):
            yield entry.name


def _entries(folder: Path) -> list[Path]:
    """Raises OSError for a folder with more than _MAX_ENTRIES: what is left out could be an accelerator."""
    found = sorted(islice(folder.iterdir(), _MAX_ENTRIES + 1))
    if len(found) > _MAX_ENTRIES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG), str(folder))
    return found
