"""Servers that refuse to start for lack of device memory: what they needed, and what there was. vLLM, SGLang, TGI.

No CUDA call fails here: the server computes that its configuration does not fit, and says so with its figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from latdoctor.collectors.logs import MEMORY_REFUSED
from latdoctor.collectors.logs.line_kind import LineKind, LineLocation
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Subject, Value, Window
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.sanitize import clean

_MAX_EVENTS = 100
_GIB = 2.0**30
_TEXT = 2000  # characters of a line that are kept


class Shortage(StrEnum):
    """What did not fit."""

    FREE_BELOW_RESERVE = "free-below-reserve"  # others hold memory that the server is to reserve
    NO_KV_ROOM = "no-kv-room"  # nothing is left for the KV cache behind weights and activations
    SEQUENCE_OVER_KV = "sequence-over-kv"  # one sequence of the configured length does not fit the KV cache
    PREFILL_OVER_MEMORY = "prefill-over-memory"  # the configured prefill does not fit
    HOST_MEMORY = "host-memory"  # the model does not fit what is free of the machine's memory


@dataclass(frozen=True, slots=True)
class StartupMemory:
    """What a message states: sizes in bytes, lengths in tokens, by signal."""

    shortage: Shortage
    readings: tuple[tuple[str, float], ...] = ()


_N = r"(\d[\d,]{0,15}(?:\.\d{1,9})?)"
_FREE = re.compile(
    rf"Free memory on device(?: \S{{1,40}})? \({_N}/{_N} GiB\) on startup is less than desired GPU memory utilization"
    rf" \([\d.]{{1,9}}, {_N} GiB\)"
)
_NO_ROOM = re.compile(
    r"No available memory for the cache blocks|Not enough memory\. Please try (?:to increase|increasing) --mem-fraction"
    r"|No enough gpu memory for building kv cache"
)
_SEQUENCE = re.compile(rf"max seq len \({_N}\),? \(?{_N} GiB KV cache is needed, which is larger than the available"
                       rf"(?: KV cache memory)? \({_N} GiB\)")  # fmt: skip
_TOKENS = re.compile(
    rf"max(?:imum)? (?:seq len|sequence length|model length) \({_N}\) is larger than the maximum number of tokens"
    rf" that can be stored in (?:the )?KV cache \({_N}\)"
)
_PREFILL = re.compile(rf"Not enough memory to handle {_N} prefill tokens")
_HOST = re.compile(rf"model requires more system memory \({_N} ?[KMGT]i?B\) than is available")
_NEEDLES = (
    rb"requires more system memory",
    rb"on startup is less than desired GPU memory|memory for the cache blocks|GiB KV cache is needed",
    rb"Please try (?:to increase|increasing) --mem-fraction|memory for building kv cache",
    rb"be stored in (?:the )?KV cache|Not enough memory to handle",
)


def shortage_in(text: str) -> StartupMemory | None:
    """The shortage that `text` reports, or None."""
    if found := _FREE.search(text):
        free, total, reserve = (_number(one) * _GIB for one in found.groups())
        known = (("start.memory_free", free), ("start.memory_total", total), ("start.memory_reserve", reserve))
        return StartupMemory(Shortage.FREE_BELOW_RESERVE, known)
    if found := _SEQUENCE.search(text):
        tokens, needed, available = (_number(one) for one in found.groups())
        sizes = (("start.kv_needed", needed * _GIB), ("start.kv_available", available * _GIB))
        return StartupMemory(Shortage.SEQUENCE_OVER_KV, (("start.sequence_tokens", tokens), *sizes))
    if found := _TOKENS.search(text):
        pairs = zip(("start.sequence_tokens", "start.kv_tokens"), map(_number, found.groups()), strict=True)
        return StartupMemory(Shortage.SEQUENCE_OVER_KV, tuple(pairs))
    if found := _PREFILL.search(text):
        return StartupMemory(Shortage.PREFILL_OVER_MEMORY, (("start.prefill_tokens", _number(found[1])),))
    if _HOST.search(text):
        return StartupMemory(Shortage.HOST_MEMORY)
    return StartupMemory(Shortage.NO_KV_ROOM) if _NO_ROOM.search(text) else None


def _number(text: str) -> float:
    return float(text.replace(",", ""))


class _StartupMemory:
    """Collects the shortages of one log. Every rank and process prints the same one: the figures are of the first."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._found: list[tuple[StartupMemory, LineLocation]] = []

    def take(self, at: LineLocation) -> None:
        found = shortage_in(at.text)
        if found is not None and len(self._found) < _MAX_EVENTS:
            self._found.append((found, at))

    def evidence(self, *, complete: bool) -> Evidence:
        subject = f"node/{self._artifact.group}"
        return Evidence(
            subjects=(Subject(subject),) if self._found else (),
            events=tuple(self._event(found, at, subject) for found, at in self._found),
            readings=tuple(self._readings(subject)),
        )

    def _event(self, found: StartupMemory, at: LineLocation, subject: str) -> Event:
        fields: dict[str, Value] = {"kind": found.shortage.value}
        text = clean(without_secrets(at.text), _TEXT)
        return Event(MEMORY_REFUSED, subject, self._origin(at), fields, at.line.time, text)

    def _readings(self, subject: str) -> Iterator[Reading]:
        known: set[str] = set()
        for found, at in self._found:
            for signal, value in found.readings:
                if signal not in known:
                    known.add(signal)
                    yield Reading(signal, subject, value, self._origin(at), Window(at.line.time, at.line.time))

    def _origin(self, at: LineLocation) -> Origin:
        return Origin(self._artifact.name, f"line {at.number}")


KIND = LineKind("startup-memory", _NEEDLES, _StartupMemory)
