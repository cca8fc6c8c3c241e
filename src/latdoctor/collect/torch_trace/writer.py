"""Makes readings and gaps of one trace, and the words in which their places are told."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from latdoctor.evidence.model import Gap, Labels, Origin, Reading, Value, Window
from latdoctor.units import format_value

NAME = "torch_trace"
SHOWN = 4  # names in one place


class Writer(Struct, frozen=True):
    """Makes readings and gaps of one trace."""

    subject: str
    artifact: str
    window: Window

    def reading(self, signal: str, value: Value, place: str, note: str = "", labels: Labels = ()) -> Reading:
        return Reading(signal, self.subject, value, Origin(self.artifact, place), self.window, labels, note)

    def gap(self, reason: str, signals: tuple[str, ...], next_step: str) -> Gap:
        return Gap(NAME, f"{self.subject}: {reason}", signals, self.subject, next_step, Origin(self.artifact))


def listed(counts: Mapping[str, int]) -> str:
    """`22 cuLaunchKernel, 38 cudaLaunchKernel*`: names that begin like another are counted with it."""
    stems: dict[str, list[str]] = {}
    for name in sorted(counts):
        stem = next((known for known in stems if name.startswith(known)), name)
        stems.setdefault(stem, []).append(name)
    parts = [
        (sum(counts[name] for name in names), f"{stem}*" if len(names) > 1 else stem) for stem, names in stems.items()
    ]
    shown = [f"{count} {stem}" for count, stem in parts[:SHOWN]]
    return ", ".join([*shown, f"{len(parts) - SHOWN} more names"] if len(parts) > SHOWN else shown)


def shown(seconds: float) -> str:
    return format_value(seconds, "time")
