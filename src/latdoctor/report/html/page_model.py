"""Values of a page: what the templates print and what the charts draw.

Texts are cleaned and escaped when they are rendered. Values are in base units, times in unix seconds. None is unknown:
it is drawn as a gap, never as zero.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

TIME, RATIO, BYTES = "time", "ratio", "bytes"  # dimensions (units.py)


class Tone(StrEnum):
    """Colour of a text or a row; the words beside it say the same."""

    NONE = ""
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    QUIET = "quiet"


class MarkKind(StrEnum):
    """What a mark on a chart stands for."""

    EVENT = "event"
    CHANGED = "changed"
    VERIFIED = "verified"
    ROLLED_BACK = "rolled-back"
    DUE = "due"


class Missing(Struct, frozen=True):
    """Why a chart or a table is not there."""

    what: str
    why: str


class Item(Struct, frozen=True):
    """An item of a list: its mark as a word ("for", "against"), and its details."""

    message: str
    mark: str = ""
    tone: Tone = Tone.NONE
    details: tuple[str, ...] = ()


class Fact(Struct, frozen=True):
    label: str
    value: str
    note: str = ""


class Table(Struct, frozen=True):
    """`numbers`: the columns that are aligned as numbers. `tones`: one for each row, or none."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    tones: tuple[Tone, ...] = ()
    note: str = ""


class Line(Struct, frozen=True):
    name: str
    times: tuple[float, ...]
    values: tuple[float | None, ...]


class Limit(Struct, frozen=True):
    name: str
    value: float


class Mark(Struct, frozen=True):
    """A moment on a chart over time: the chart shows its `label`, the key below its `message`."""

    time: float
    label: str
    message: str
    kind: MarkKind


class Highlight(Struct, frozen=True):
    """A number of the page's head, marked on a chart where it was measured: from `start` to `end`."""

    name: str
    label: str  # the number as the head prints it
    value: float
    start: float
    end: float


class Lines(Struct, frozen=True):
    """Quantities over time (UTC). `whole`: the whole range where this chart shows the recent part of it.

    `span`: times that the axis contains at least, so that charts below each other have the same axis.
    """

    id: str
    title: str
    dimension: str
    lines: tuple[Line, ...]
    limits: tuple[Limit, ...] = ()
    marks: tuple[Mark, ...] = ()
    highlights: tuple[Highlight, ...] = ()
    note: str = ""
    whole: Lines | None = None
    span: tuple[float, ...] = ()


class Group(Struct, frozen=True):
    """`color`: one of six, from 1; 0 takes the next."""

    name: str
    values: tuple[float | None, ...]
    color: int = 0


class Bars(Struct, frozen=True):
    """Values by category, groups side by side; `horizontal` bars have long names."""

    id: str
    title: str
    axis: str
    dimension: str
    categories: tuple[str, ...]
    groups: tuple[Group, ...]
    horizontal: bool = False
    note: str = ""


class Stage(Struct, frozen=True):
    name: str
    length: float


class StageTrack(Struct, frozen=True):
    """Consecutive stages under one name. `color` as of a Group."""

    name: str
    stages: tuple[Stage, ...]
    color: int = 0

    @property
    def length(self) -> float:
        return sum(stage.length for stage in self.stages)


class Waterfall(Struct, frozen=True):
    """Stages, each drawn from the end of the one before."""

    id: str
    title: str
    dimension: str
    tracks: tuple[StageTrack, ...]
    note: str = ""


class Score(Struct, frozen=True):
    message: str
    points: int


class ScoreBreakdown(Struct, frozen=True):
    """Evidence for (+) and against (−) a cause in points; ten points make it ten times as likely."""

    id: str
    title: str
    rows: tuple[Score, ...]
    note: str = ""


Chart = Lines | Bars | Waterfall | ScoreBreakdown


class LineKind(StrEnum):
    """What a line of the answer is; the style sheet lays it out by this."""

    VERDICT = "verdict"
    CAUSE = "cause"
    EVIDENCE = "evidence"
    COMMAND = "command"
    DETAIL = "detail"
    ROW = "row"


class AnswerLine(Struct, frozen=True):
    """A sentence of the terminal's answer, split into its columns."""

    cells: tuple[str, ...]
    kind: LineKind
    tone: Tone = Tone.NONE


class Section(Struct, frozen=True):
    """`template` prints `content`, whose type it knows."""

    id: str
    title: str
    template: str
    content: object
    lead: str = ""


class Page(Struct, frozen=True):
    """`badge` and `tone`: the state in a word."""

    title: str
    badge: str
    tone: Tone
    headline: str
    scope: str
    sections: tuple[Section, ...]
    answer: tuple[AnswerLine, ...] = ()
    answer_title: str = ""
    facts: tuple[Fact, ...] = ()
    figures: tuple[Fact, ...] = ()
    foot: tuple[str, ...] = ()
