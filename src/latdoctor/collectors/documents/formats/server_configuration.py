"""Configurations of servers that were saved to a file: Triton's /v2/models/M/config and config.pbtxt, TorchServe's
/models/M, Ray Serve's /api/serve/applications/.
"""

from __future__ import annotations

import re
from functools import partial

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.server_config.collector import evidence_of
from latdoctor.collectors.server_config.configurations import (
    RAY_SERVE,
    TORCHSERVE,
    TRITON,
    TRITON_TEXT,
    ConfigurationKind,
)
from latdoctor.evidence.model import Evidence

_FIRST = r"[^\0]{0,60000}"  # characters within which a key is


def _read(kind: ConfigurationKind, section: Section) -> Evidence:
    """Raises ValueError for a damaged document."""
    found = kind.read(section.text.encode())
    place = file_name(section)
    return Evidence.merge(evidence_of(one, place, section.artifact, None) for one in found)


def _format(kind: ConfigurationKind, begins: str) -> TextFormat:
    return TextFormat(
        name=kind.name,
        title=kind.title,
        begins=re.compile(begins),
        read=partial(_read, kind),
        provides=frozenset(kind.signals),
        whole=True,
    )


TRITON_MODEL = _format(
    TRITON,
    rf'\A\s*\{{(?={_FIRST}"max_batch_size"\s*:)'
    rf'(?={_FIRST}"(?:instance_group|version_policy|dynamic_batching|ensemble_scheduling)"\s*:)',
)
TRITON_MODEL_TEXT = _format(
    TRITON_TEXT,
    rf"\A(?:\s|#[^\n]*\n)*(?=(?:name|platform|backend|max_batch_size|input|instance_group|default_model_filename)\b)"
    rf"(?={_FIRST}\b(?:platform|backend|max_batch_size)\s*:)"
    rf"(?={_FIRST}\b(?:input|output|instance_group|dynamic_batching|sequence_batching|ensemble_scheduling)\s*:?\s*[\[{{])",
)
TORCHSERVE_MODELS = _format(
    TORCHSERVE, rf'\A\s*\[\s*\{{(?={_FIRST}"modelName"\s*:)(?={_FIRST}"batchSize"\s*:)(?={_FIRST}"minWorkers"\s*:)'
)
RAY_SERVE_APPLICATIONS = _format(
    RAY_SERVE, rf'\A\s*\{{(?={_FIRST}"applications"\s*:\s*\{{)(?={_FIRST}"deployment_config"\s*:)'
)
