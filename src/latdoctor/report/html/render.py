"""The page as one HTML file that asks for nothing: its style, its scripts and its data stand in it.

Every text goes through `element`, which escapes whatever is not markup that it made itself. The file names its own
style and scripts by their digests in a Content-Security-Policy: nothing else can run, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources

import msgspec

from latdoctor.report.html import charts
from latdoctor.report.html import charts as tables
from latdoctor.report.html.document import (
    Account,
    Bars,
    Beside,
    Block,
    Card,
    Chart,
    Entry,
    Facts,
    Fold,
    Key,
    Lines,
    Listing,
    NotSeen,
    Page,
    PageSection,
    Paragraph,
    Table,
    Waterfall,
)
from latdoctor.sanitize import clean

LIBRARY_VERSION = "6.1.0"
# SHA-256 of echarts.min.js, which charts/build.sh makes.
LIBRARY_DIGEST = "f09425167bdd783bc6c86ac34103476dc5a50601b455f5da5ddd6f54499c885e"


@cache
def style() -> str:
    return _read("page.css")


@cache
def script() -> str:
    return _read("page.js")


@cache
def library() -> str:
    """Apache ECharts with the parts that the pages use; its LICENSE and NOTICE lie beside it."""
    return _read("echarts/echarts.min.js")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("files", name).read_text(encoding="utf-8")


_LONGEST = 4000  # characters of one text
_VOID = ("meta", "br")
_KIND_SIGNS = {"happened": "●", "changed": "◆", "mended": "✓", "undone": "↺", "due": "◷"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: str) -> Markup:
    """`<name …>children</name>`; an underscore at the end of an attribute's name is dropped, others become hyphens."""
    known = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items() if value
    )
    if name in _VOID:
        return Markup(f"<{name}{known}>")
    return Markup(f"<{name}{known}>{joined(child for child in children if child)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    return html.escape(clean(text, _LONGEST), quote=True)


def render(page: Page) -> str:
    """The whole file."""
    drawn = tuple(_charts_of(page))
    scripts = (library(), script())
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {_digest(style())}; script-src {' '.join(_digest(script) for script in scripts)}"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content="latdoctor"),
        element("title", f"{page.badge}: {page.headline}"),
        element("style", Markup(style())),
    )
    data = element("script", Markup(_data(drawn)), type="application/json", id="charts")
    body = element(
        "body",
        element("a", "Skip to the answer", href="#answer", class_="skip"),
        _head(page),
        _contents(page.sections),
        element("main", *(_section(section) for section in page.sections)),
        _foot(page),
        data,
        *(element("script", Markup(script)) for script in scripts),
    )
    return f"<!DOCTYPE html>\n{Markup(element('html', head, body, lang='en'))}\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(drawn: Iterable[Chart]) -> str:
    """JSON that cannot end the element it stands in: no `<` is left, and U+2028 was cleaned away or escaped."""
    raw = msgspec.json.encode([{"id": chart.id, "options": charts.options(chart)} for chart in drawn]).decode()
    for sign in "<>&\u2028\u2029":
        raw = raw.replace(sign, f"\\u{ord(sign):04x}")
    return raw


def _charts_of(page: Page) -> Iterator[Chart]:
    for section in page.sections:
        yield from _charts_in(section.blocks)


def _charts_in(blocks: Iterable[Block]) -> Iterator[Chart]:
    for block in blocks:
        match block:
            case Lines() | Bars() | Waterfall() | Account():
                yield block
            case Fold() | Card() | Beside():
                yield from _charts_in(block.blocks)


def _head(page: Page) -> Markup:
    return element(
        "header",
        element("p", element("span", page.badge, class_=f"badge {page.tone}"), " ", page.title, class_="eyebrow"),
        element("h1", page.headline),
        element("p", page.scope, class_="scope"),
        _facts(page.answer, "rows") if page.answer.facts else None,
        _facts(page.figures, "tiles"),
        id="answer",
        tabindex="-1",
    )


def _contents(sections: Iterable[PageSection]) -> Markup:
    links = (element("li", element("a", section.title, href=f"#{section.id}")) for section in sections)
    return element("nav", element("ul", *links), aria_label="Sections")


def _section(section: PageSection) -> Markup:
    heading = f"{section.id}-title"
    return element(
        "section",
        element("h2", section.title, id=heading),
        element("p", section.lead, class_="lead") if section.lead else None,
        *(_block(block) for block in section.blocks),
        id=section.id,
        aria_labelledby=heading,
    )


def _foot(page: Page) -> Markup:
    return element(
        "footer",
        *(element("p", line) for line in page.foot),
        element("p", f"Charts by Apache ECharts {LIBRARY_VERSION} (Apache License 2.0), which is part of this file."),
        element(
            "noscript", "The charts are drawn by a script of this file. Without it the tables below each say the same."
        ),
    )


def _block(block: Block) -> Markup:
    match block:
        case Paragraph():
            return element("p", block.message, class_=f"says {block.tone}")
        case NotSeen():
            return element("p", element("strong", block.what), f": not seen, because {block.why}", class_="not-seen")
        case Listing():
            return _listing(block)
        case Facts():
            return _facts(block, "rows")
        case Table():
            return _table(block, stacked=True)
        case Key():
            return _key(block)
        case Fold():
            return element(
                "details",
                element("summary", block.summary),
                *(_table(one, stacked=False) if isinstance(one, Table) else _block(one) for one in block.blocks),
                open="open" if block.open else "",
            )
        case Card():
            return _card(block)
        case Beside():
            return element("div", *(_block(one) for one in block.blocks), class_="beside")
        case _:
            return _figure(block)


def _card(card: Card) -> Markup:
    heading = element("h3", card.title, " ", element("span", card.badge, class_=f"badge {card.tone}"))
    return element(
        "article",
        heading,
        element("p", card.facts, class_="scope"),
        *(_block(one) for one in card.blocks),
        class_="card",
    )


def _listing(listing: Listing) -> Markup:
    heading = element("h4", listing.heading) if listing.heading else None
    items = element("ul", *(_entry(entry) for entry in listing.entries), class_="entries")
    return element("div", heading, items, class_="listing")


def _entry(entry: Entry) -> Markup:
    mark = element("span", entry.mark, class_=f"mark {entry.tone}") if entry.mark else None
    known: str = element("span", entry.message)
    if entry.details:
        lines = element("ul", *(element("li", line) for line in entry.details))
        known = element("details", element("summary", entry.message), lines)
    return element("li", mark, element("div", known))


def _facts(facts: Facts, how: str) -> Markup:
    rows = (
        element(
            "div",
            element("dt", fact.label),
            element(
                "dd", element("b", fact.value), element("small", fact.note) if fact.note else None, class_=fact.tone
            ),
        )
        for fact in facts.facts
    )
    return element("dl", *rows, class_=how)


def _key(key: Key) -> Markup:
    items = (
        element("li", element("b", mark.label), " ", element("span", _KIND_SIGNS.get(mark.kind, ""), class_=mark.kind,
                aria_hidden="true"), " ", element("span", mark.message))
        for mark in key.marks
    )  # fmt: skip
    return element("ol", *items, class_="key", aria_label="The numbered marks of the charts")


def _figure(chart: Chart) -> Markup:
    kind = type(chart).__name__.lower()
    heading = f"{chart.id}-caption"
    table = tables.table(chart)
    return element(
        "figure",
        element("figcaption", element("h3", chart.title, id=heading)),
        element("div", id=f"chart-{chart.id}", class_=f"canvas {kind}", role="img", aria_label=tables.spoken(chart),
                data_rows=str(charts.rows(chart))),
        element("p", chart.note, class_="note") if chart.note else None,
        element("details", element("summary", f"Data: {chart.title}"), _table(table, stacked=False), class_="data"),
        aria_labelledby=heading,
    )  # fmt: skip


def _table(table: Table, *, stacked: bool) -> Markup:
    """`stacked`: on a narrow screen each row becomes a block; else the table scrolls in a region of its own."""
    head = element(
        "tr", *(element("th", name, scope="col", class_=_number(table, at)) for at, name in enumerate(table.columns))
    )
    tones = table.tones or ("",) * len(table.rows)
    body = (
        element("tr", *(_cell(table, at, text) for at, text in enumerate(row)), class_=tone)
        for row, tone in zip(table.rows, tones, strict=True)
    )
    made = element("table", element("caption", table.caption), element("thead", head), element("tbody", *body))
    note = element("p", table.note, class_="note") if table.note else None
    if stacked:
        return joined((element("div", made, class_="stacked"), note or Markup("")))
    region = element("div", made, class_="scroll", role="region", tabindex="0", aria_label=table.caption)
    return joined((region, note or Markup("")))


def _cell(table: Table, at: int, text: str) -> Markup:
    label = table.columns[at]
    if at == 0:
        return element("th", text, scope="row", data_label=label, class_=_number(table, at))
    return element("td", text or "–", data_label=label, class_=_number(table, at))


def _number(table: Table, at: int) -> str:
    return "number" if at in table.numbers else ""
