"""A repeated diagnosis: what changed since the one before, on one line or on a redrawn screen."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.report import presenter
from latdoctor.report.answer import answer
from latdoctor.report.comparison import answered
from latdoctor.report.one_screen import HEIGHT
from latdoctor.units import percent

LATELY = 4  # changes on the screen


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A change of the answer. `at` in unix seconds."""

    at: float
    message: str


def summary(diagnosis: Diagnosis) -> str:
    """The verdict and its answer in one line; a change of it is a new line."""
    return answered(diagnosis.verdict, diagnosis.answer)


def line(diagnosis: Diagnosis) -> str:
    """The same with the probabilities and the symptoms."""
    shares = [percent(cause.probability) for cause in presenter.shown_causes(diagnosis, every=False)]
    pain = [line.message for line in presenter.symptoms(diagnosis) if line.kind == presenter.FOR]
    listed = f" ({', '.join(shares)})" if shares else ""
    return f"{summary(diagnosis)}{listed}{': ' if pain else ''}{'; '.join(pain[:2])}"


def stamped(change: StatusChange) -> str:
    """`2026-11-22 02:51:10 UTC  critical: app.load.burst (94 %)`."""
    return f"{moment(change.at)}  {change.message}"


def moment(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def screen(diagnosis: Diagnosis, lately: Sequence[StatusChange], heading: str) -> RenderableType:
    """The newest answer below the latest changes; a low terminal cuts its end."""
    parts = [Text(heading, style="dim", no_wrap=True, overflow="ellipsis")]
    parts += [
        Text(f"{moment(known.at)[11:19]}  {known.message}", no_wrap=True, overflow="ellipsis")
        for known in lately[-LATELY:]
    ]
    lines = answer(diagnosis, HEIGHT - len(parts) - 1)
    return Group(*parts, Text(), *(Text(line.text, style=line.style, no_wrap=True) for line in lines))
