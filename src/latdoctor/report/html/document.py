"""What stands on a page, as frozen values: sections of blocks, charts as typed data. Nothing here knows HTML.

Texts are cleaned and escaped where they are written. Values are in base units, times in unix seconds. None is not
known: it is drawn as a gap, and never as zero.
"""

from __future__ import annotations

from msgspec import Struct

GOOD, BAD, WARN, QUIET = "good", "bad", "warn", "quiet"  # tones; the words beside them say the same
TIME, RATIO, BYTES = "time", "ratio", "bytes"  # dimensions (units.py)
HAPPENED, CHANGED, MENDED, UNDONE, DUE = "happened", "changed", "mended", "undone", "due"  # what a mark is


class Paragraph(Struct, frozen=True):
    message: str
    tone: str = ""


class NotSeen(Struct, frozen=True):
    """Why there is nothing where a reader looks for something."""

    what: str
    why: str


class Entry(Struct, frozen=True):
    """A line of a list: its mark as a word ("for", "against"), and what belongs to it."""

    message: str
    mark: str = ""
    tone: str = ""
    details: tuple[str, ...] = ()


class Listing(Struct, frozen=True):
    entries: tuple[Entry, ...]
    heading: str = ""


class Fact(Struct, frozen=True):
    label: str
    value: str
    note: str = ""
    tone: str = ""


class Facts(Struct, frozen=True):
    facts: tuple[Fact, ...]


class Table(Struct, frozen=True):
    """`numbers`: the columns that are set as numbers. `tones` has one for each row, or none."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    tones: tuple[str, ...] = ()
    note: str = ""


class Line(Struct, frozen=True):
    name: str
    times: tuple[float, ...]
    values: tuple[float | None, ...]


class Limit(Struct, frozen=True):
    name: str
    value: float


class Mark(Struct, frozen=True):
    """A moment on a chart of time: the chart shows its `label`, the key below what it `says`."""

    time: float
    label: str
    message: str
    kind: str


class Lines(Struct, frozen=True):
    """Quantities over time (UTC)."""

    id: str
    title: str
    dimension: str
    lines: tuple[Line, ...]
    limits: tuple[Limit, ...] = ()
    marks: tuple[Mark, ...] = ()
    note: str = ""


class Group(Struct, frozen=True):
    """`color`: which of the six, from 1 on; 0 takes the next."""

    name: str
    values: tuple[float | None, ...]
    color: int = 0


class Bars(Struct, frozen=True):
    """Values by category, groups side by side; `lying` bars have long names."""

    id: str
    title: str
    over: str
    dimension: str
    categories: tuple[str, ...]
    groups: tuple[Group, ...]
    lying: bool = False
    note: str = ""


class Piece(Struct, frozen=True):
    name: str
    length: float


class Course(Struct, frozen=True):
    """How long one after the other took, under one name. `color` as of a Group."""

    name: str
    pieces: tuple[Piece, ...]
    color: int = 0

    @property
    def length(self) -> float:
        return sum(piece.length for piece in self.pieces)


class Waterfall(Struct, frozen=True):
    """Stages of one way, each from where the one before it ends."""

    id: str
    title: str
    dimension: str
    courses: tuple[Course, ...]
    note: str = ""


class Share(Struct, frozen=True):
    message: str
    points: int


class Account(Struct, frozen=True):
    """What speaks for (+) and against (−), in points; ten make it ten times likelier."""

    id: str
    title: str
    rows: tuple[Share, ...]
    note: str = ""


Chart = Lines | Bars | Waterfall | Account


class Key(Struct, frozen=True):
    """What the numbered marks of the charts are."""

    marks: tuple[Mark, ...]


class Fold(Struct, frozen=True):
    """Blocks that are opened by whoever wants them."""

    summary: str
    blocks: tuple[Block, ...]
    open: bool = False


class Card(Struct, frozen=True):
    """A cause: `badge` is how sure it is."""

    title: str
    badge: str
    tone: str
    facts: str
    blocks: tuple[Block, ...]


class Beside(Struct, frozen=True):
    """Charts side by side where there is room."""

    blocks: tuple[Block, ...]


Block = Paragraph | NotSeen | Listing | Facts | Table | Lines | Bars | Waterfall | Account | Key | Fold | Card | Beside


class PageSection(Struct, frozen=True):
    id: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""


class Page(Struct, frozen=True):
    """`badge` and `tone`: how it is, in a word. `answer`: what three in the morning asks for."""

    title: str
    badge: str
    tone: str
    headline: str
    scope: str
    answer: Facts
    figures: Facts
    sections: tuple[PageSection, ...]
    foot: tuple[str, ...]
