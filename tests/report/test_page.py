"""The page as text: nothing of it can act, nothing of it is fetched, and what is missing says why."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latdoctor.cli import html_report as cli_pages
from latdoctor.incident import events
from latdoctor.incident.elapsed import rfc3339
from latdoctor.incident.events import CauseRecord
from latdoctor.incident.timeline import of_run, timeline
from latdoctor.incident.timeline_model import Timeline
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.report import machine_formats
from latdoctor.report.diagnosis_text import EvidenceKind, EvidenceLine, TierLine
from latdoctor.report.html import diagnosis_page, incident_page, measurement_charts, render
from latdoctor.report.html.page_inputs import AFTER, AT_WORST, Snapshot, chosen, unix
from latdoctor.report.html.page_model import (
    AnswerLine,
    Bars,
    Fact,
    Group,
    Highlight,
    Item,
    Limit,
    Line,
    LineKind,
    Lines,
    Mark,
    MarkKind,
    Missing,
    Page,
    Score,
    ScoreBreakdown,
    Section,
    Table,
    Tone,
)
from latdoctor.sanitize import clean
from tests.cli.running import run
from tests.incident.scenarios import RUN, Log, carried_out, diagnosed, long, promo_rush
from tests.report import pages

HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;{a|b}{{x}}\u202e\x1b[31m@bad"
HOSTILE_TEXTS: dict[str, str] = json.loads((Path(__file__).parents[1] / "incident" / "hostile.json").read_text())
_VOID = {"meta"}
_TAGS = re.compile(
    "html|head|meta|title|style|script|body|a|header|p|span|h[1-4]|ul|ol|li|nav|main|section|article|div|dl|dt|dd|b|"
    "small|figure|figcaption|details|summary|table|caption|thead|tbody|tr|th|td|strong|footer|noscript|button"
)
TEMPLATES = Path(render.__file__).parent / "templates"


class Reader(html.parser.HTMLParser):
    """The elements of a page, its texts, and whether every element is closed where it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.inside: list[tuple[str, str]] = []  # of script and style: the element and its text
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            self.inside.append((self._open[-1], data))
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def small(text: str) -> Page:
    """A page with `text` in every kind of place."""
    table = Table(text, (text, text), ((text, text),), tones=(Tone.BAD,), note=text)
    evidence = tuple(EvidenceLine(kind, text, (text,)) for kind in EvidenceKind)
    bars = Bars("b", text, text, "ratio", (text,), (Group(text, (1.0,)),), note=text)
    line = Line(text, (0.0, 1.0), (1.0, 2.0))
    lines = Lines("l", text, "time", (line,), (Limit(text, 1.0),), (), (Highlight(text, text, 1.0, 0.0, 1.0),), text)
    marks = (Mark(0.0, "1", text, MarkKind.EVENT),)
    breakdown = ScoreBreakdown("s", text, (Score(text, 3),), text)
    (cause,) = pages.looked("promo-rush.tar.zst")[0].causes[:1]
    cause = msgspec.structs.replace(cause, title=text, explanation=text)
    card = diagnosis_page.CauseCard(cause, text, text, ((text, text),), evidence, (text,), breakdown)
    tier = TierLine(text, text, evidence, evidence, (text,), ())
    record = CauseRecord(text, text, 0.9, True, text, (text,), (text,), (text,))
    event = msgspec.structs.replace(pages.told().looks[0], causes=(record,))
    contents = {
        "charts": measurement_charts.ChartRows(((bars, Missing(text, text)), (lines,)), marks),
        "causes": diagnosis_page.Causes(text, (card,), None, table, (text,)),
        "recorded_causes": event,
        "checks": diagnosis_page.Checks(evidence, (tier,)),
        "gaps": diagnosis_page.Gaps((text,), table),
        "steps": (text,),
        "table": table,
        "runs": (incident_page.Run(text, Item(text, text, Tone.WARN), table, table),),
        "events": incident_page.Events(table, table, True),
    }
    assert {f"{name}.html.j2" for name in (*contents, "page", "blocks")} == {path.name for path in TEMPLATES.iterdir()}
    sections = tuple(Section(name, text, name, content, text) for name, content in contents.items())
    fact = Fact(text, text, text)
    answer = tuple(AnswerLine((text, text), kind) for kind in LineKind)
    return Page(text, text, Tone.BAD, text, text, sections, answer, text, (fact,), (fact,), (text,))


def test_a_page_says_the_cause_first_and_has_every_section() -> None:
    text = Reader(render.render(pages.incident())).text
    for part in ("Long requests run alone", "worst P99", "Latency over time", "Batch sizes", "Batch tokens", "Memory"):
        assert part in text
    for part in ("Time of a request by stage", "SOP clock", "Timeline", "What was not measured", "Probability of each"):
        assert part in text
    assert text.index("Long requests run alone") < text.index("worst P99") < text.index("Latency over time")


def test_hostile_text_is_text_wherever_it_stands() -> None:
    rendered = render.render(pages.incident(HOSTILE))
    read = Reader(rendered)
    assert [tag for tag, _ in read.tags if not _TAGS.fullmatch(tag)] == []
    assert [attributes for tag, attributes in read.tags if any(name.startswith("on") for name in attributes)] == []
    assert len([1 for tag, _ in read.tags if tag == "script"]) == 2
    assert read.text.count("<script>alert(1)</script>") > 20
    assert "\x1b" not in rendered
    assert "\u202e" not in rendered


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_an_incident_of_hostile_texts_has_the_elements_of_a_plain_one(name: str) -> None:
    plain, read = (Reader(bare(text)) for text in ("plain", HOSTILE_TEXTS[name]))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in plain.tags]
    assert [sorted(attributes) for _, attributes in read.tags] == [sorted(attributes) for _, attributes in plain.tags]


def bare(text: str) -> str:
    return render.render(incident_page.of_incident(timeline(promo_rush(text).incident), ()))


@given(text=st.text(max_size=300))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
def test_no_text_becomes_an_element_or_an_attribute(text: str) -> None:
    """The law of escaping: a text changes no element, no attribute's name, and appears as it is, cleaned."""
    plain, read = Reader(render.render(small("x"))), Reader(render.render(small(f"x{text}x")))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in plain.tags]
    assert [list(attributes) for _, attributes in read.tags] == [list(attributes) for _, attributes in plain.tags]
    for name in ("class", "id", "href", "content", "role", "type"):
        values = [[attributes.get(name) for _, attributes in one.tags] for one in (read, plain)]
        assert values[0] == values[1]
    shown = sum(clean(f"x{text}x") in one for one in read.texts)
    assert shown >= sum(one.strip() == "x" for one in plain.texts) > 60


@given(text=st.text(alphabet="<>&\"'/{}%# x\u2028`=", max_size=60))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
def test_names_in_chart_data_are_json_and_nothing_else(text: str) -> None:
    read = Reader(render.render(small(f"x{text}x")))
    data = [json.loads(attributes["data-options"]) for _, attributes in read.tags if "data-options" in attributes]
    assert len(data) == 3


def test_the_policy_names_the_digest_of_every_script_and_of_the_style() -> None:
    read = Reader(render.render(pages.diagnosis()))
    (policy,) = [attributes["content"] for _, attributes in read.tags if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    acting = [text for _, text in read.inside]
    assert allowed == {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in acting}
    assert len(acting) == 3


def test_nothing_of_a_page_leads_anywhere() -> None:
    read = Reader(render.render(pages.incident()))
    assert all(attributes["href"].startswith("#") for _, attributes in read.tags if "href" in attributes)
    assert not any("src" in attributes or "srcset" in attributes for _, attributes in read.tags)
    assert "url(" not in render.style()
    assert "@import" not in render.style()


def test_every_link_of_the_contents_leads_to_a_section() -> None:
    read = Reader(render.render(pages.incident()))
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"][1:] for _, attributes in read.tags if "href" in attributes} <= set(ids)


def test_the_same_incident_gives_the_same_bytes() -> None:
    assert render.render(pages.incident()) == render.render(pages.incident())


def test_every_chart_has_its_numbers_in_a_table_and_a_name() -> None:
    rendered = render.render(pages.incident())
    read = Reader(rendered)
    canvases = [attributes for _, attributes in read.tags if attributes.get("class", "").startswith("canvas")]
    assert len(canvases) >= 8
    assert all(canvas["role"] == "img" and canvas["aria-label"] for canvas in canvases)
    assert all(json.loads(canvas["data-options"])["series"] for canvas in canvases)
    assert len({canvas["id"] for canvas in canvases}) == len(canvases)
    assert rendered.count("<summary>Data: ") == len(canvases)


def test_what_is_missing_says_why_and_draws_nothing() -> None:
    told = pages.told()
    page = incident_page.of_incident(told, (Snapshot(AT_WORST, None, None, why="it was thrown away"),))
    read = Reader(render.render(page))
    assert "not available: it was thrown away" in read.text
    assert "Of this diagnosis only the summary in the journal is left" in read.text
    empty = incident_page.of_incident(timeline(promo_rush().incident), ())
    assert "Batch sizes not available:" in Reader(render.render(empty)).text


def figures(told: Timeline, looks: Sequence[Snapshot]) -> dict[str, tuple[str, str]]:
    page = incident_page.of_incident(told, looks)
    return {fact.label: (fact.value, fact.note) for fact in page.figures}


def test_the_worst_p99_is_of_whatever_has_shown_one() -> None:
    """With the figure beside `at worst` it must agree."""
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("slow", (), events.OpenedBy.HAND, "", ""))
    log.add(70, events.DIAGNOSED, diagnosed())
    unsampled = timeline(log.incident)
    assert figures(unsampled, ()) == {
        **figures(unsampled, ()),
        "worst P99": ("not measured", "no SLO is known, no samples were taken"),
        "over the SLO": ("not measured", "no samples were taken"),
    }
    diagnosis, evidence = pages.looked("promo-rush.tar.zst")
    shown = re.search(
        r"P99 is ([\d.]+ m?s); the SLO is ([\d.]+ m?s)", " ".join(one.message for one in diagnosis.checks)
    )
    assert shown is not None
    wanted = shown[1], f"SLO {shown[2]}, measured by a diagnosis, no samples were taken"
    for look in (Snapshot(AT_WORST, diagnosis, evidence, 0.5), Snapshot(AT_WORST, diagnosis, None)):
        assert figures(unsampled, (look,))["worst P99"] == wanted
    log.add(80, events.RUN_JOINED, events.RunJoined(RUN))
    carried_out(log, 80)
    ran = timeline(log.incident)
    assert figures(ran, ())["worst P99"] == ("3.2 s", "no SLO is known, measured by a run, no samples were taken")
    assert figures(pages.told(), ())["worst P99"] == ("3.2 s", "SLO 500 ms")


def test_a_run_alone_has_a_page_too() -> None:
    entries = [entry for entry in promo_rush().entries if entry.run == RUN]
    read = Reader(render.render(incident_page.of_incident(of_run(RUN, entries), ())))
    assert "VERIFIED" in read.text.upper()
    assert "3.2 s" in read.text
    assert "Latency over time" not in read.text


def test_ten_thousand_entries_give_a_page_of_bounded_size() -> None:
    rendered = render.render(incident_page.of_incident(timeline(long(10_000).incident), ()))
    assert len(rendered) < 6 << 20
    assert "in the middle are left out" in rendered


def test_the_library_is_the_one_that_is_named() -> None:
    """`charts/build.sh` makes it anew from the versions that are locked, and prints this digest."""
    assert hashlib.sha256(render.library().encode()).hexdigest() == render.LIBRARY_DIGEST
    folder = Path(render.__file__).parent / "files" / "echarts"
    assert "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert "Apache Software Foundation" in (folder / "NOTICE").read_text(encoding="utf-8")
    assert "BSD" in (folder / "LICENSE-zrender").read_text(encoding="utf-8")
    locked = json.loads((Path(__file__).parents[2] / "charts" / "package-lock.json").read_text(encoding="utf-8"))
    assert locked["packages"]["node_modules/echarts"]["version"] == render.LIBRARY_VERSION
    assert not any("resolved" in package for package in locked["packages"].values())


@pytest.mark.parametrize(
    "text", [render.library(), render.script(), render.style()], ids=["library", "script", "style"]
)
def test_what_is_put_in_cannot_end_its_element(text: str) -> None:
    assert "</script" not in text.lower()
    assert "</style" not in text.lower()
    assert "<!--" not in text
    assert "\r" not in text


def luminance(color: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_told_from_their_grounds(scheme: str) -> None:
    """WCAG 2.2 AA: 4.5 to 1 for texts, 3 to 1 for lines and bars."""
    light, _, dark = render.style().partition("prefers-color-scheme: dark")
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light if scheme == "light" else dark))
    for ink in ("ink", "quiet", "link", "good", "bad", "warn", "change"):
        for ground in ("card", "ground"):
            assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)
    for tone in ("good", "bad", "warn"):
        assert contrast(colors[tone], colors[f"{tone}-ground"]) >= 4.5, tone
    for place in range(1, 7):
        assert contrast(colors[f"series{place}"], colors["card"]) >= 3


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_diagnose_writes_a_page_beside_its_answer(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    bundle = str(pages.INCIDENTS / "promo-rush.tar.zst")
    outcome = run(["diagnose", bundle, "--html", str(file), "--against", str(pages.INCIDENTS / "no-fault.tar.zst")])
    assert outcome.code == 3
    assert "CRITICAL" in outcome.out
    text = Reader(file.read_text(encoding="utf-8")).text
    assert "Long requests run alone" in text
    assert "before" in text


def test_a_page_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    outcome = run(["diagnose", str(pages.INCIDENTS / "no-fault.tar.zst"), "--html", str(tmp_path / "no" / "page.html")])
    assert outcome.code == 1
    assert "could not be written" in outcome.err


def test_a_page_that_is_there_is_not_written_over_and_that_is_told_before_the_look(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("with remarks")
    outcome = run(["diagnose", str(pages.INCIDENTS / "no-fault.tar.zst"), "--html", str(page)])
    assert (outcome.code, outcome.out) == (2, "")
    assert "already exists" in outcome.err
    assert "name a new file" in outcome.err
    assert page.read_text() == "with remarks"


def test_a_page_is_for_one_look() -> None:
    outcome = run(["diagnose", "--watch", "--server", "http://127.0.0.1:1/metrics", "--html", "x.html"])
    assert outcome.code == 2
    assert "--html" in outcome.err


def kept(folder: Path, *, name: str = "promo-rush.tar.zst") -> None:
    """A look of the rush in the state folder, as its entry names it."""
    looks = folder / "incidents" / "x" / "looks"
    looks.mkdir(parents=True)
    (looks / "1.tar.zst").write_bytes((pages.INCIDENTS / name).read_bytes())
    (looks / "1.json").write_text(machine_formats.render_diagnosis(pages.looked(name)[0]), encoding="utf-8")


@pytest.mark.parametrize(
    ("document_", "bundle", "message"),
    [
        ("incidents/x/looks/1.json", "incidents/x/looks/1.tar.zst", "Distribution of latencies"),
        ("incidents/x/looks/1.json", "incidents/x/looks/9.tar.zst", "cannot be read again"),
        ("../../etc/hostname", "incidents/x/looks/1.tar.zst", "points outside the state folder"),
        ("incidents/x/looks/1.tar.zst", "incidents/x/looks/1.json", "cannot be read again"),
        ("", "", "none was stored"),
    ],
)
def test_looks_are_read_again_from_the_state_folder(tmp_path: Path, document_: str, bundle: str, message: str) -> None:
    kept(tmp_path)
    told = pages.told()
    looks = tuple(msgspec.structs.replace(look, document=document_, bundle=bundle) for look in told.looks)
    page = cli_pages.of_incident(msgspec.structs.replace(told, looks=looks), tmp_path)
    assert message in Reader(render.render(page)).text


def test_the_timeline_of_a_journal_as_html(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    journal = Journal.opened(tmp_path / "state" / JOURNAL)
    for entry in promo_rush().entries:
        journal.append(entry.run, entry.kind, msgspec.json.decode(bytes(entry.body)))
    outcome = run(["timeline", "--format", "html", "--to", str(tmp_path / "page.html")])
    assert outcome.code == 0, outcome.err
    assert "P99 over SLO" in Reader((tmp_path / "page.html").read_text(encoding="utf-8")).text


def test_the_looks_that_are_compared() -> None:
    """The last healthy one before the worst, the worst, the last."""
    told = pages.told()
    (look,) = told.looks
    levels = ("healthy", "healthy", "warning", "critical", "critical", "healthy")
    looks = tuple(msgspec.structs.replace(look, level=level, run_id=str(place)) for place, level in enumerate(levels))
    found = chosen(msgspec.structs.replace(told, looks=looks))
    assert [one.run_id for _, one in found] == ["1", "3", "5"]
    assert chosen(msgspec.structs.replace(told, looks=())) == ()


@pytest.mark.parametrize(("seconds", "names"), [(-1.0, [AT_WORST]), (1.0, [AT_WORST, AFTER])])
def test_a_look_as_bad_is_afterwards_only_where_something_was_changed(seconds: float, names: list[str]) -> None:
    told = pages.told()
    (look,), (run_,) = told.looks, told.runs
    ended = unix(run_.ended_at or "")
    assert ended is not None
    again = msgspec.structs.replace(look, at=rfc3339(ended + seconds), causes=())
    found = chosen(msgspec.structs.replace(told, looks=(look, again)))
    assert [name for name, _ in found] == names


def test_what_was_worse_after_a_change_is_afterwards() -> None:
    """The remedy was taken back, and it is named more surely than before: both looks are compared."""
    told = pages.told()
    (look,), (run_,) = told.looks, told.runs
    ended = unix(run_.ended_at or "")
    assert ended is not None
    before = msgspec.structs.replace(look, causes=())
    found = chosen(msgspec.structs.replace(told, looks=(before, msgspec.structs.replace(look, at=rfc3339(ended + 1)))))
    assert [(name, bool(one.causes)) for name, one in found] == [(AT_WORST, False), (AFTER, True)]
