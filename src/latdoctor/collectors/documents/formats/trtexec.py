"""The log of trtexec, whole or the part of it that was pasted: summary, layer times, layer information, messages."""

from __future__ import annotations

import re

from msgspec import structs

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.logs.collector import parse as parse_log
from latdoctor.collectors.tensorrt import PRINTED, SIGNALS, build_log
from latdoctor.collectors.tensorrt import evidence as engine_evidence
from latdoctor.collectors.tensorrt.engine_figures import EngineFiles
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

_TITLES = "Latency|End-to-End Host Latency|Enqueue Time|H2D Latency|GPU Compute Time|D2H Latency"


def read(section: Section) -> Evidence:
    """The engine's figures, and failed calls that the log reports. Raises ValueError where it has neither."""
    content = section.text.encode()
    files = EngineFiles()
    files.add(build_log.read(content), section.artifact)
    found = engine_evidence.evidence(files, f"engine/{file_name(section)}")
    log = Artifact(section.artifact, "logs", file_name(section), section.source, section.taken_at, content)
    reported = structs.replace(parse_log([log]), looked=(), gaps=(), clipped=())
    if not found.readings and not reported.events:
        raise ValueError("it has no figures of an engine")
    return Evidence.merge([found, reported])


FORMAT = TextFormat(
    name="trtexec",
    title="trtexec",
    begins=re.compile(
        r"^\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[VIWEF]\] |^&&&& \w+ TensorRT"
        r"|^(?:\[[VIWE]\] )?\s*=== (?:Performance summary|Profile \(\d+ iterations ?\)) ==="
        rf"|^(?:\[[VIWE]\] )?\s*(?:{_TITLES}): min = \d"
    ),
    read=read,
    provides=frozenset((*SIGNALS, *PRINTED)),
    confirms=re.compile(r"GPU Compute|=== Profile|Layer Inform|TensorRT|\[TRT\]|Enqueue Time|trtexec|Throughput"),
    contains_times=True,
    repeats=True,
)
