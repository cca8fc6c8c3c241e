"""What the log lines of inference engines report, in words: events, and since when a quantity is at its level."""

from __future__ import annotations

from latdoctor.diagnosis.result import Diagnosis, Vital
from latdoctor.report import time_scope

# Of one event, and of several.
PHRASES = {
    "log.engine_dead": ("engine died", "{} reports of a dead engine"),
    "log.engine_timeout": ("an engine process timed out", "{} time-outs between engine processes"),
    "log.kv_full": ("KV cache or context full", "{} × KV cache or context full"),
    "log.queue_full": ("request refused, queue full", "{} × request refused, queue full"),
    "log.model_failed": ("model not loaded", "{} × model not loaded"),
    "log.pool_fallback": ("memory pool not used", "{} × memory pool not used"),
    "log.prefix_cache_lost": ("cached prompt computed anew", "{} × cached prompt computed anew"),
    "log.kv_transfer_failed": ("KV cache not transferred", "{} × KV cache not transferred"),
    "log.kernel_compiled": ("kernel compiled in a request", "{} × kernel compiled in a request"),
    "log.slot_awaited": ("request put off for want of a slot", "{} × request put off for want of a slot"),
}


def events(diagnosis: Diagnosis) -> str:
    """`2 reports of a dead engine since 16:29:20, 7 time-outs between engine processes since 16:24:13`."""
    return ", ".join(_event(diagnosis, one) for one in diagnosis.vitals if one.signal in PHRASES)


def dated(diagnosis: Diagnosis, sign: Vital, phrase: str) -> str:
    """`phrase` with the time at which the sign moved: `53 waiting since 09:43:10 (0 before)`."""
    if sign.since is None:
        return phrase
    return f"{phrase} since {time_scope.moment(diagnosis, sign.since)} ({sign.before} before)"


def _event(diagnosis: Diagnosis, sign: Vital) -> str:
    one, several = PHRASES[sign.signal]
    words = one if sign.value == 1 else several.format(sign.shown)
    if sign.since is None:
        return words
    return f"{words} {'at' if sign.value == 1 else 'since'} {time_scope.moment(diagnosis, sign.since)}"
