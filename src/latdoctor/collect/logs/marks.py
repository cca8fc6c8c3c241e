"""Marks of changes in application logs: a process that starts, a model that is loaded, a configuration, a deployment.

Only what the common servers write, or a line that says so in so many words, is taken: a line that merely mentions
a deployment is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """Something changed. `signal` is that of the event, `what` the words for it."""

    signal: str
    what: str = ""
    to: str = ""


# A line without any of these holds no mark. On bytes, as WORTH_A_LOOK of lines.py.
WORTH_A_LOOK = re.compile(
    rb"Started server process|Booting worker|tarting (?:vLLM|gunicorn|to load model)|successfully loaded '"
    rb"|oad(?:ed|ing) model|(?i:model[ _]version|deploy(?:ed|ing)\b|roll(?:ed|ing) out)"
    rb"|(?i:config\w* (?:file )?(?:\S{1,99} )?(?:re)?(?:loaded|changed))"
    rb"|reloading config|signal process started"
)
_NAME, _VERSION = r"[\w./-]{1,150}", r"[\w.-]{1,60}"
_BECAME = r"(?: (?:is now|changed to|set to|switched to|updated to))? ?[:=]? ?"
_FORMS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("change.process_start", "", re.compile(r"Started server process|Booting worker|Starting gunicorn|Starting vLLM")),
    # Triton: successfully loaded 'densenet_onnx' version 2
    (
        "change.model",
        "model",
        re.compile(rf"successfully loaded '(?P<what>[^']{{1,100}})'(?: version (?P<to>{_VERSION}))?"),
    ),
    # vLLM: Starting to load model meta-llama/Llama-3-8B...
    ("change.model", "model", re.compile(rf"Starting to load model (?P<what>{_NAME}?)\.{{0,3}}(?:\s|$)")),
    # TorchServe: Loading model: a, version: 1.0
    (
        "change.model",
        "model",
        re.compile(rf"[Ll]oad(?:ed|ing) model:? [\"']?(?P<what>{_NAME})[\"']?(?:,? version:? (?P<to>{_VERSION}))?"),
    ),
    (
        "change.model",
        "model version",
        re.compile(rf"\bmodel[ _]version{_BECAME}[\"']?(?P<to>v?\d[\w.-]{{0,60}})", re.I),
    ),
    (
        "change.config",
        "configuration",
        re.compile(
            r"\bconfig(?:uration)?(?: file)? (?P<what>\S{1,150} )?(?:re)?(?:loaded|changed)\b"
            r"|reloading config|signal process started",
            re.I,
        ),
    ),
    ("change.deployment", "", re.compile(r"\b(?:deploy(?:ed|ing)|roll(?:ed|ing) out)\s+(?P<what>\S.{0,120})", re.I)),
)


def mark_of(message: str) -> Mark | None:
    """The change that `message` tells, or None."""
    for signal, what, form in _FORMS:
        found = form.search(message)
        if found:
            named = found.groupdict()
            thing = " ".join(part for part in (what, (named.get("what") or "").strip()) if part)
            return Mark(signal, thing, named.get("to") or "")
    return None
