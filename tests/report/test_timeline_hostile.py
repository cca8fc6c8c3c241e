"""Whatever texts an incident brings, they are words in every form of its timeline, and nothing else.

The texts are in tests/incident/hostile.json; a renderer that is new belongs into FORMS of test_timeline_forms.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from latdoctor.incident import events
from latdoctor.incident.timeline import timeline
from latdoctor.incident.timeline_model import Timeline
from latdoctor.report.markdown import escape
from latdoctor.sanitize import clean
from tests.incident.scenarios import BEGAN, Log, cause, diagnosed, promo_rush, sampled
from tests.report.test_timeline_forms import FORMS, STAGES

HOSTILE: dict[str, str] = json.loads((Path(__file__).parents[1] / "incident" / "hostile.json").read_text())
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# As it is made of text; of names that begin with a digit these are all.
EMOJI = re.compile(r":(?:100|1234|8ball|[123](?:st|nd|rd)_place_medal|[a-z_+-][a-z0-9_+-]*):", re.IGNORECASE)
PARTS = "<!-- -->"  # shows nothing, and no emoji reaches over it


def hostile(text: str) -> Timeline:
    return timeline(promo_rush(text).incident, STAGES)


def bare(text: str) -> Timeline:
    """Every text from outside is this one, from its first character on."""
    log = Log()
    log.add(
        0,
        events.OPENED,
        events.IncidentOpened(text, (text,), events.OpenedBy.HAND, "", "", BEGAN - 1, text, text, text),
    )
    alert = events.Alert(
        text, events.AlertStatus.FIRING, text, {"severity": text, text: text}, {text: text}, None, None, text
    )
    log.add(1, events.ALERTED, events.AlertsReceived(text, text, (alert,)))
    log.add(2, events.CONFIRMED, events.AlertConfirmed(events.Confirmation.CONFIRMED, text, text))
    log.add(3, events.DIAGNOSED, diagnosed(cause(text, text=text), text=text))
    log.add(4, events.SAMPLED, sampled(3.0, text=text))
    log.add(5, events.NOTED, events.NoteAdded(text, text))
    log.add(6, events.PLANNED, events.PlanRecord(text, text, text, text, text, text))
    log.add(7, events.MARKED, events.StageMarked(text, text, text))
    log.add(8, events.NOTIFIED, events.NotificationSent(text, text, text, sent=False, why=text))
    log.add(9, "run.refused", {"guard": text, "reason": text}, "r1")
    log.add(9, events.RUN_JOINED, events.RunJoined("r1"))
    log.add(10, events.CLOSED, events.IncidentClosed("resolved", text, text))
    return timeline(log.incident)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_it_acts(name: str, form: str) -> None:
    made = FORMS[form](hostile(HOSTILE[name]))
    assert CONTROL.findall(made) == []
    if form == "json":
        json.loads(made)
        assert not re.search(r"\\u00[01][0-9a-f]|\\u00[89]|\\u20[26]", made)
    if form == "cloudevents":
        lines = made.splitlines()
        assert {json.loads(line)["specversion"] for line in lines} == {"1.0"}
        assert len(lines) == FORMS[form](hostile("plain")).count("\n")
    if form == "text":
        assert max(cell_len(line) for line in made.splitlines()) <= 80
    if form == "markdown":
        assert shape(made) == shape(FORMS[form](hostile("plain")))
        assert (emoji(made), formulas(made)) == ([], [])
        assert not re.search(r"(?<!\\)(https?:(?=//)|www\.|<(?!!--)|!\[|@here)", made.replace("\\:", "")), name


def shape(markdown: str) -> list[tuple[str, str, int]]:
    """Everything of a document but its words: blocks and what is within them."""
    found = []
    for token in MARKDOWN.parse(markdown):
        found.append((token.type, token.tag, token.level))
        within = (child for child in token.children or () if child.type != "text" and child.content != PARTS)
        found += [(child.type, child.tag, token.level) for child in within]
    return found


def emoji(markdown: str) -> list[str]:
    """What GitHub makes emoji of: it looks at each piece of text once Markdown has been made of it."""
    blocks = [token.children for token in MARKDOWN.parse(markdown) if token.children]
    texts = ("".join(one.content if one.type == "text" else "\n" for one in block) for block in blocks)
    return [found for text in texts for found in EMOJI.findall(text)]


def formulas(markdown: str) -> list[str]:
    """Dollars that are not escaped: between two of them GitHub sees a formula."""
    return re.findall(r"\$", re.sub(r"\\.", "", markdown))


PLAIN = shape(FORMS["markdown"](bare("plain")))
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text("#*_`|[]()<>!~-+=>.:\\/&$ \n\t1a文", max_size=30),
    st.text(":ax1+-$ ", max_size=12),
    st.sampled_from(sorted(HOSTILE.values())),
)


@settings(max_examples=150)
@given(TEXTS)
@example("x ")
@example("x\u3000")
def test_markdown_keeps_its_structure_whatever_the_texts_are(text: str) -> None:
    # Without a name nobody is listed, and latdoctor itself is no responder.
    assume(clean(text, 20).strip() not in ("", "latdoctor"))
    made = FORMS["markdown"](bare(text))
    assert shape(made) == PLAIN
    assert (emoji(made), formulas(made)) == ([], [])


def test_a_time_of_day_stays_as_it_is() -> None:
    assert escape("at 06:49:00 http://x a:b 0000:9b:00") == r"at 06:49:00 http\://x a:b 0000:9b:00"
    assert escape(":fire: $1$ :100: :+1:") == r":<!-- -->fire: \$1\$ :<!-- -->100: :<!-- -->\+1:"


@settings(max_examples=100)
@given(TEXTS)
def test_text_keeps_its_columns_whatever_the_texts_are(text: str) -> None:
    made = FORMS["text"](bare(text))
    assert max(cell_len(line) for line in made.splitlines()) <= 80
    assert CONTROL.findall(made) == []
    assert made.count("\n---") == FORMS["text"](bare("plain")).count("\n---")


@settings(max_examples=60)
@given(TEXTS)
def test_every_line_of_ndjson_is_one_event_whatever_the_texts_are(text: str) -> None:
    made = FORMS["cloudevents"](bare(text))
    assert all(json.loads(line)["id"] for line in made.split("\n")[:-1])
    assert CONTROL.findall(made) == []
