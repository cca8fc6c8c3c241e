"""TensorRT engines: what trtexec writes beside the engine itself, which is not opened.

One file is enough; its neighbours of the same engine (`model.graph.json`, `model.profile.json`, `model.timing.json`,
`model.build.log`) are taken along. Several engines are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.collectors.input_files import MAX_FILES, FileFinder, NamedFile, file_reader, safe_name, unique_name
from latdoctor.collectors.tensorrt import NAME, SIGNALS, build_log, file_formats
from latdoctor.collectors.tensorrt import evidence as engine_evidence
from latdoctor.collectors.tensorrt.build_log import BuildLog
from latdoctor.collectors.tensorrt.engine_figures import EngineFiles
from latdoctor.collectors.tensorrt.file_formats import Document
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.gap_code import GapCode

# How the files of one engine end, longest first; trt-engine-explorer's names, and those that people give.
_ENDINGS = (
    ".profile.metadata.json", ".build.metadata.json", ".metadata.json", ".layer_info.json", ".layerinfo.json",
    ".graph.json", ".layers.json", ".profile.json", ".timing.json", ".times.json", ".build.log", ".profile.log",
    ".log", ".json", ".txt",
)  # fmt: skip
_HOW = "give a file that trtexec wrote: --exportLayerInfo, --exportProfile, --exportTimes, or its log"


def _named(finder: FileFinder, given: Sequence[Path]) -> Iterator[NamedFile]:
    """The files given and their neighbours of the same engine; the files of one engine are read together."""
    first = [file.path for file in finder.files(given)]
    files = [file.path for file in finder.files(path for one in first for path in (one, *_neighbours(one)))]
    engines = dict.fromkeys(_engine(path) for path in files)
    stems = Counter(stem for _, stem in engines)
    groups: dict[tuple[Path, str], str] = {}
    for folder, stem in engines:
        # Engines of one name in several folders (fp16/model, int8/model) are distinguished by their folders.
        shown = f"{folder.name}-{stem}" if stems[stem] > 1 else stem
        groups[folder, stem] = unique_name(safe_name(shown, "engine"), groups.values())
    taken: set[str] = set()
    for path in files:
        group = groups[_engine(path)]
        name = unique_name(f"{group}.{safe_name(_ending(path).strip('.') or 'file', 'file')}", taken)
        taken.add(name)
        yield NamedFile(path, group, name)


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What the files of one engine show. Raises SourceError where none of them can be read."""
    subject = f"engine/{artifacts[0].group}"
    files = EngineFiles()
    refused: list[tuple[SourceError, Artifact]] = []
    for artifact in artifacts:
        try:
            files.add(_read(artifact), artifact.name)
        except SourceError as error:
            refused.append((error, artifact))
    if len(refused) == len(artifacts):
        raise refused[0][0]
    gaps = tuple(
        Gap(
            NAME,
            f"{error.where or artifact.source}: {error.what}",
            (),
            subject,
            error.next_step,
            Origin(artifact.name),
            error.code,
        )
        for error, artifact in refused
    )
    return Evidence.merge([engine_evidence.evidence(files, subject), Evidence(gaps=gaps)])


def _read(artifact: Artifact) -> Document | BuildLog:
    content = artifact.read(build_log.MAX_BYTES)
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        if not build_log.is_log(content[:4096]) or not content.startswith(b"["):
            return _document(content, artifact.source)
        # A log without `&&&&` begins with a bracket as well: [11/22/2026-00:00:00] [I] …
        try:
            return _document(content, artifact.source)
        except SourceError:
            return build_log.read(content)
    if not build_log.is_log(content):
        raise SourceError(
            "tells nothing of a TensorRT engine", where=artifact.source, next_step=_HOW, code=GapCode.UNSUPPORTED
        )
    return build_log.read(content)


def _document(content: bytes, where: str) -> Document:
    if len(content) > file_formats.MAX_BYTES:
        raise SourceError(
            f"{len(content) >> 20} MiB is more than the {file_formats.MAX_BYTES >> 20} MiB that are read at most",
            where=where,
            next_step="export fewer runs: trtexec --iterations=100 --duration=0",
            code=GapCode.TOO_LARGE,
        )
    return file_formats.read(content, where)


def _ending(path: Path) -> str:
    return next((ending for ending in _ENDINGS if path.name.lower().endswith(ending)), "")


def _engine(path: Path) -> tuple[Path, str]:
    """The folder and the name of the engine that a file belongs to."""
    return path.parent, path.name[: len(path.name) - len(_ending(path))]


def _neighbours(path: Path) -> Iterator[Path]:
    """Other files of the same engine in the same folder."""
    ending = _ending(path)
    if ending in ("", ".json", ".log", ".txt"):  # a name of its own, which others only happen to share
        return
    folder, stem = _engine(path)
    try:
        found = sorted(folder.glob("*"))[: 16 * MAX_FILES]
    except OSError:
        return  # the file itself could be read; what lies beside it is an extra
    for other in found:
        if other != path and _ending(other) not in ("", ".txt") and _engine(other)[1] == stem and other.is_file():
            yield other


READER = file_reader(
    lambda: FileFinder(NAME, SIGNALS, _ENDINGS, _HOW),
    paths=lambda request: request.tensorrt,
    named=_named,
    parse=parse,
    availability=SourceAvailability(
        "TensorRT engines",
        Availability.IF_GIVEN,
        "fusion, number types, tensor cores, conversions and the host's share of an engine",
        "trtexec --exportLayerInfo=m.graph.json --exportProfile=m.profile.json; --tensorrt FILE",
        "--tensorrt FILE",
    ),
)
