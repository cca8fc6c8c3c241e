"""How bad it is, in the four words that PagerDuty has (PD-CEF): critical, error, warning, info."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

SEVERITIES: Final = ("critical", "error", "warning", "info")  # the worst first
# What the `severity` label of an alert usually says (kubernetes-mixin, Prometheus' own rules, Opsgenie's P1 to P5).
_LABELS: Final = {
    "critical": ("critical", "crit", "page", "fatal", "emergency", "disaster", "sev1", "p1"),
    "error": ("error", "err", "high", "major", "sev2", "p2"),
    "warning": ("warning", "warn", "medium", "minor", "ticket", "sev3", "p3"),
    "info": ("info", "information", "informational", "low", "notice", "none", "debug", "sev4", "p4", "p5"),
}
_OF_LABEL: Final = {word: severity for severity, words in _LABELS.items() for word in words}
UNSAID: Final = "error"  # PagerDuty wants one; this is what an Alertmanager gives where none is told


def of_alert(labels: Mapping[str, str]) -> str:
    """Of an alert with these labels; UNSAID where its label says nothing that is known."""
    return _OF_LABEL.get(labels.get("severity", "").strip().lower(), UNSAID)


def of_level(level: str) -> str:
    """Of a diagnosis' verdict. One that is not healthy and not known to hurt is a warning."""
    return level if level in SEVERITIES else "info" if level == "healthy" else "warning"


def worst(found: Iterable[str]) -> str:
    """The worst of them; UNSAID where there are none."""
    return min(found, key=SEVERITIES.index, default=UNSAID)
