"""Iteration statistics of TensorRT-LLM as JSON: what its `/metrics` and `LLM.get_stats()` return, a list or one object
a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.logs.engine_lines import EngineReader
from latdoctor.collectors.logs.line_kind import LineLocation
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

_MOST = 1_000_000  # iterations
_SIGNALS = (
    "requests.running", "queue.depth", "requests.limit", "requests.scheduled", "requests.in_prefill",
    "requests.in_decode", "requests.swapped", "kv.usage", "kv.blocks_used", "kv.blocks_free", "kv.blocks",
    "kv.hit_ratio", "iteration.time",
)  # fmt: skip


def _read(section: Section) -> Evidence:
    """What the iterations show. Raises ValueError for a text that is no JSON or has no iteration in it."""
    group = section.artifact.partition("/")[2] or section.artifact
    artifact = Artifact(section.artifact, "documents", group, section.source, section.taken_at, b"")
    reader = EngineReader(artifact)
    count = 0
    for count, one in enumerate(_iterations(section.text), 1):
        text = json.dumps(one)
        reader.take(LineLocation(count, text, LogLine(text), "iteration"))
        if count == _MOST:
            break
    if not count:
        raise ValueError("it has no iteration")
    return reader.evidence(complete=True)


def _iterations(text: str) -> Iterator[dict[str, object]]:
    """The objects with statistics, at the top or in a list."""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        while position < len(text) and (text[position].isspace() or text[position] in ",[]"):
            position += 1
        if position == len(text):
            return
        try:
            value, position = decoder.raw_decode(text, position)
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        if isinstance(value, dict) and ("numActiveRequests" in value or "inflightBatchingStats" in value):
            yield value


FORMAT = TextFormat(
    name="tensorrt-llm-statistics",
    title="iteration statistics of TensorRT-LLM",
    begins=re.compile(r'\A\s*(?:\[\s*)?\{(?=[^\0]{0,4000}"(?:inflightBatchingStats|iterLatencyMS)"\s*:)'),
    read=_read,
    provides=frozenset(_SIGNALS),
    whole=True,
)
