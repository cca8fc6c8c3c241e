"""Disks and file systems of a Linux machine as printed by `iostat -x` and `df`."""

from __future__ import annotations

import re
from statistics import fmean

from latdoctor.collectors.documents.formats.linux_processor import NODE
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject

BUSY, QUEUE, WAIT = "host.disk.busy_ratio", "host.disk.queue", "host.disk.wait"
FREE, INODES_FREE = "host.filesystem.free_ratio", "host.filesystem.inodes_free_ratio"
_IOSTAT = re.compile(r"^Device:?\s+.*\b(?:r/s|rrqm/s)\b.*%util\s*$")
_DF = re.compile(
    r"^Filesystem\s+(?:Type\s+)?(?:\S+\s+Used\s+Avail(?:able)?\s+(?:Use|Capacity)%?|Inodes\s+IUsed\s+IFree\s+IUse%)"
    r"\s+Mounted on"
)
_ROW = re.compile(r"^(\S+)\s+(?:[a-z]\w*\s+)?(\d\S*)\s+(\d\S*)\s+(\d\S*)\s+(?:\d+%|-)\s+(/.*)$")
_SIZE = re.compile(r"(\d+(?:[.,]\d+)?)([KMGTPE]?)(?:i?B)?")
_SCALE = {"": 1.0, **{suffix: 1024.0 ** (place + 1) for place, suffix in enumerate("KMGTPE")}}
# Images that are full by nature, and what the kernel shows as file systems.
_NO_ROOM_BY_NATURE = re.compile(r"^/dev/loop|^(?:squashfs|iso9660|efivarfs|cdrom|udev|devtmpfs|nsfs)\b|^/dev/sr\d")
_MILLISECOND = 1e-3
_LEAST_BUSY = 30.0  # per cent: of a disk with few requests one slow one makes the mean


def read_iostat(section: Section) -> Evidence:
    """What each device was busy with, and on the machine how long a request took at the busiest device.

    The first report, which is the mean since the machine started, counts only if it is the only one.
    """
    names: list[str] = []
    reports: list[dict[str, dict[str, float]]] = []
    for line in section.text.splitlines():
        cells = line.split()
        if _IOSTAT.match(line):
            names = cells[1:]
            reports.append({})
        elif reports and len(cells) == len(names) + 1 and re.fullmatch(r"\d+[.,]\d+", cells[-1]):
            figures = [float(cell.replace(",", ".")) for cell in cells[1:]]
            reports[-1][cells[0]] = dict(zip(names, figures, strict=True))
    reports = [report for report in reports[1:] or reports if report]
    if not reports:
        raise ValueError("it has no device")
    devices = {name: _mean([report[name] for report in reports if name in report]) for name in reports[-1]}
    return _disks(devices, section)


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(row[name] for row in rows) for name in rows[-1]}


def _disks(devices: dict[str, dict[str, float]], section: Section) -> Evidence:
    origin = section.origin()
    readings = []
    for name, figures in devices.items():
        labels = (("device", name),)
        readings.append(Reading(BUSY, NODE, figures["%util"] / 100, origin, labels=labels))
        queue = figures.get("aqu-sz", figures.get("avgqu-sz"))
        if queue is not None:
            readings.append(Reading(QUEUE, NODE, queue, origin, labels=labels))
    busiest = max(devices.values(), key=lambda figures: figures["%util"])
    wait = _wait(busiest)
    if wait is not None:
        readings.append(Reading(WAIT, NODE, wait * _MILLISECOND, origin))
    return Evidence(subjects=(Subject(NODE),), readings=tuple(readings))


def _wait(figures: dict[str, float]) -> float | None:
    """The mean time of a request in milliseconds: reads and writes weighed by their number. None for an idle disk."""
    if figures["%util"] < _LEAST_BUSY:
        return None
    rates = [(figures.get(f"{kind}/s", 0.0), figures[f"{kind}_await"]) for kind in "rw" if f"{kind}_await" in figures]
    total = sum(rate for rate, _ in rates)
    if not rates:
        return figures.get("await")
    return sum(rate * wait for rate, wait in rates) / total if total else None


def read_df(section: Section) -> Evidence:
    """The room left in each file system that programs write to. Raises ValueError where none is listed."""
    signal = INODES_FREE if "IUse%" in section.text.partition("\n")[0] else FREE
    shares: dict[str, Reading] = {}
    for number, line in enumerate(section.text.splitlines()):
        row = _ROW.match(line)
        if row is None or _NO_ROOM_BY_NATURE.search(row[1]) or not (size := _bytes(row[2])):
            continue
        subject = f"filesystem/{row[5].strip()}"
        shares[subject] = Reading(signal, subject, min(1.0, _bytes(row[4]) / size), section.origin(number))
    if not shares:
        raise ValueError("it lists no file system")
    subjects = (Subject(NODE), *(Subject(name, NODE) for name in shares))
    return Evidence(subjects=subjects, readings=tuple(shares.values()))


def _bytes(text: str) -> float:
    found = _SIZE.fullmatch(text)
    return float(found[1].replace(",", ".")) * _SCALE[found[2]] if found else 0.0


IOSTAT = TextFormat("iostat", "iostat -x", _IOSTAT, read_iostat, frozenset({BUSY, QUEUE, WAIT}), repeats=True)
DF = TextFormat("df", "df", _DF, read_df, frozenset({FREE, INODES_FREE}))
