"""A limit of concurrent or waiting requests that was changed lately, as people or machines noted it.

A note names the setting with its old and its new number: `max-num-seqs 4 -> 1`, `max_queue_size from 0 to 2`. Only the
settings of servers and proxies that hold requests back count; where 0 stands for no limit at all, it counts as such.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from latdoctor.detectors.change_effect import belongs
from latdoctor.detectors.derived_readings import latest_numbers
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Window
from latdoctor.sanitize import clean
from latdoctor.units import clock_time

RATIO, CHANGE = "admission.limit_ratio", "admission.change"
DERIVED = (RATIO, CHANGE)
NOTES = ("change.deployment", "change.config", "change.process_start")
HOLDERS = ("queue.depth", "requests.running")  # signals of what may hold requests back
LATELY = 1800.0  # seconds before the end of the evidence
# Without "-", "_" and case. vLLM, SGLang, TensorRT-LLM, TGI, llama.cpp, Ollama, Ray Serve, Knative, Envoy, BentoML.
_RUNNING = frozenset(
    {
        "maxnumseqs",
        "maxrunningrequests",
        "maxconcurrentrequests",
        "maxconcurrency",
        "concurrency",
        "concurrencylimit",
        "parallel",
        "nparallel",
        "numparallel",
        "ollamanumparallel",
        "maxongoingrequests",
        "containerconcurrency",
        "maxrequests",
        "maxconcurrentcalls",
    }
)
_WAITING = frozenset(
    {"maxqueuesize", "maxnumqueuedreqs", "maxqueuedrequests", "jobqueuesize", "queuelimit", "queuesize"}
)  # Triton, vLLM, SGLang, Ray Serve, TorchServe
_NOTED = re.compile(r"([A-Za-z][\w.-]*)[\s:=\"']*(?:\bfrom\s+)?(\d{1,9})\s*(?:->|=>|→|\bto\b)\s*(\d{1,9})\b")


def limit_changes(evidence: Evidence) -> Evidence:
    """Derive the last change of a limit for each subject that lets requests wait, and may be meant by the note."""
    end = evidence.time.end
    reported = {one.subject for one in evidence.readings_by_signal.get(RATIO, ())}
    notes = [event for name in NOTES for event in evidence.events_by_signal.get(name, ()) if event.time is not None]
    late = [one for one in notes if end is not None and end - LATELY <= (one.time or 0.0) <= end]
    found = [(event, change) for event in sorted(late, key=_time) for change in _changes(event)]
    subjects = {one.subject for name in HOLDERS for one, _ in latest_numbers(evidence, name)} - reported
    readings: list[Reading] = []
    for subject in sorted(subjects):
        last = next(((event, one) for event, one in reversed(found) if belongs(evidence, event.subject, subject)), None)
        if last is not None:
            event, (text, ratio) = last
            window = Window(event.time, end)
            said = f"{text} at {clock_time(_time(event))}"
            readings.append(Reading(RATIO, subject, ratio, event.origin, window, note=said))
            readings.append(Reading(CHANGE, subject, said, Origin(event.origin.artifact, event.origin.place), window))
    return Evidence(readings=tuple(readings))


def _changes(event: Event) -> Iterator[tuple[str, float]]:
    """Each limit that the note says was changed: in words, and the new number over the old one."""
    for setting, before, after in _NOTED.findall(event.text):
        name = re.sub(r"[-_]", "", setting.rpartition(".")[2]).lower()
        if name in _RUNNING or name in _WAITING:
            old, new = (math.inf if name in _WAITING and not int(one) else float(one) for one in (before, after))
            if old > 0 and old != new:
                yield f"{clean(setting, 60)} {before} → {after}", 0.0 if math.isinf(old) else min(new / old, 1e9)


def _time(event: Event) -> float:
    return event.time or 0.0
