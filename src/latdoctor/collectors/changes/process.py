"""Changes visible in a process: its start, the configuration files on its command line, its Python packages.

Reads /proc/PID/stat, cmdline, cwd and maps, and of the files that these name only names, times and digests. The command
line itself is not stored, because it may contain secrets.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.collectors.proc_pid_stat import parse_stat
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Evidence, Gap, Origin, Value
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

MAX_STATE = 16 << 20  # bytes of JSON
_MAX_FILES, _MAX_FILE, _MAX_PACKAGES, _MAX_FOLDERS = 64, 16 << 20, 4000, 8
_CONFIGURATION = (".yaml", ".yml", ".json", ".toml", ".ini", ".conf", ".cfg", ".env", ".pbtxt", ".properties")
_PACKAGES = re.compile(r"(/\S*/(?:site|dist)-packages)/")
_DISTRIBUTION = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[A-Za-z0-9.!+_]+)\.dist-info")
_TOGETHER = 120.0  # seconds; packages installed within this time are one installation
_SHOWN = 3


class ConfigFile(Struct, frozen=True):
    """A configuration file. `digest` is a prefix of its SHA-256; empty if it was not read."""

    path: str
    modified: float  # unix seconds UTC
    digest: str


class InstalledPackage(Struct, frozen=True):
    name: str
    version: str
    installed: float  # unix seconds UTC


class ProcessState(Struct, frozen=True):
    """`started` is None if unreadable; `unread` says why."""

    pid: int
    started: float | None
    files: tuple[ConfigFile, ...] = ()
    packages: tuple[InstalledPackage, ...] = ()
    unread: tuple[str, ...] = ()


def read_process_state(pid: int, root: Path = Path("/")) -> ProcessState:
    """Never raises: unreadable parts are listed in `unread`."""
    unread: list[str] = []
    folder = root / "proc" / str(pid)
    started: float | None = None
    try:
        started = _started(folder, root)
    except (OSError, ValueError) as error:
        unread.append(f"/proc/{pid}/stat: {_why(error)}")
    try:
        files = tuple(_files(folder, root))
    except OSError as error:
        files = ()
        unread.append(f"/proc/{pid}/cmdline: {_why(error)}")
    try:
        packages = tuple(_packages(folder, root))
    except OSError as error:
        packages = ()
        unread.append(f"/proc/{pid}/maps: {_why(error)}")
    return ProcessState(pid, started, files, packages, tuple(unread))


def _why(error: Exception) -> str:
    return (error.strerror or "cannot be read") if isinstance(error, OSError) else str(error)


def _started(folder: Path, root: Path) -> float:
    """Raises OSError, ValueError."""
    boot = re.search(r"^btime (\d{1,12})$", (root / "proc" / "stat").read_text(errors="replace"), re.MULTILINE)
    if boot is None:
        raise ValueError("/proc/stat has no boot time")
    ticks = parse_stat((folder / "stat").read_text(errors="replace")).start_ticks
    return int(boot[1]) + ticks / os.sysconf("SC_CLK_TCK")


def _files(folder: Path, root: Path) -> Iterator[ConfigFile]:
    """The configuration files on the command line. Raises OSError."""
    with (folder / "cmdline").open("rb") as file:
        words = file.read(1 << 20).decode("utf-8", "replace").split("\0")
    named = dict.fromkeys(part for word in words for part in (word, word.partition("=")[2]) if part)
    configurations = [name for name in named if name.lower().endswith(_CONFIGURATION)]
    for name in configurations[:_MAX_FILES]:
        place = root / name.lstrip("/") if name.startswith("/") else folder / "cwd" / name
        try:
            if place.is_file():
                yield ConfigFile(name, place.stat().st_mtime, _digest(place))
        except OSError:  # deleted meanwhile, or not readable
            continue


def _digest(place: Path) -> str:
    if place.stat().st_size > _MAX_FILE:
        return ""
    with place.open("rb") as file:
        return hashlib.sha256(file.read(_MAX_FILE)).hexdigest()[:16]


def _packages(folder: Path, root: Path) -> Iterator[InstalledPackage]:
    """The packages next to the libraries mapped into the process. Raises OSError."""
    with (folder / "maps").open(errors="replace") as file:
        folders = dict.fromkeys(found[1] for line in file if (found := _PACKAGES.search(line)))
    left = _MAX_PACKAGES
    for name in list(folders)[:_MAX_FOLDERS]:
        try:
            entries = sorted(os.scandir(root / name.lstrip("/")), key=lambda entry: entry.name)
        except OSError:  # a folder inside a container with another root
            continue
        for entry in entries:
            found = _DISTRIBUTION.fullmatch(entry.name)
            if found and left:
                left -= 1
                yield InstalledPackage(found["name"], found["version"], entry.stat().st_mtime)


def parse(artifact: Artifact) -> Evidence:
    """Return the events of one process. Raises SourceError if the artifact is damaged."""
    try:
        state = msgspec.json.decode(artifact.read(MAX_STATE), type=ProcessState)
    except UNDECODABLE as error:
        raise SourceError(f"not a process state: {error}", where=artifact.source) from error
    subject = f"process/{state.pid}"
    events: list[Event] = []
    if state.started is not None:
        origin = Origin(artifact.name, f"/proc/{state.pid}/stat")
        events.append(Event("change.process_start", subject, origin, {}, state.started))
    for one in state.files:
        origin = Origin(artifact.name, clean(one.path, 200))
        fields = {"what": clean(one.path, 200), "digest": clean(one.digest, 16)}
        events.append(Event("change.config", subject, origin, dict(fields), one.modified))
    events += _installations(state.packages, subject, artifact.name)
    own = "run latdoctor as the user of that process"
    gaps = tuple(Gap("changes", clean(reason), (), subject, own, code=GapCode.UNREADABLE) for reason in state.unread)
    looked = ("change.process_start", "change.config", "change.package")
    return Evidence(events=tuple(events), looked=tuple((signal, subject) for signal in looked), gaps=gaps)


def _installations(packages: Iterable[InstalledPackage], subject: str, artifact: str) -> Iterator[Event]:
    """Packages installed within two minutes of each other are one event."""
    group: list[InstalledPackage] = []
    for one in (*sorted(packages, key=lambda package: package.installed), None):
        if group and (one is None or one.installed > group[-1].installed + _TOGETHER):
            names = [clean(f"{package.name} {package.version}", 80) for package in group]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            fields: dict[str, Value] = {"what": ", ".join(names[:_SHOWN]) + more, "count": float(len(names))}
            yield Event("change.package", subject, Origin(artifact, "dist-info"), fields, group[-1].installed)
            group = []
        if one is not None:
            group.append(one)
