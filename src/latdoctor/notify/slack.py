"""Slack, an incoming webhook with Block Kit.

External text is put into `plain_text` objects, which Slack does not format, and everywhere `&`, `<` and `>` are written
as entities, so that it cannot mention, link or insert dates. Only our own words are mrkdwn.

https://docs.slack.dev/reference/block-kit/composition-objects/text-object: at most 50 blocks, 3000 characters of a
text, 10 fields of 2000 characters in a section, 150 characters of a header.
https://docs.slack.dev/messaging/formatting-message-text: escaping.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from latdoctor.incident.state import Incident
from latdoctor.notify.messages import Notice, message_of
from latdoctor.notify.receiver_config import Message, Receiver
from latdoctor.sanitize import TITLE, clean, fitted

MAX_BLOCKS, MAX_TEXT, MAX_FIELDS, MAX_FIELD, MAX_HEADER = 50, 3000, 10, 2000, 150
_MOST_DETAILS = 60  # in twelve sections
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


class _Plain(Struct, frozen=True, tag_field="type", tag="plain_text"):
    text: str
    emoji: bool = False


class _Marked(Struct, frozen=True, tag_field="type", tag="mrkdwn"):
    """For our own words only."""

    text: str
    verbatim: bool = True


class _Header(Struct, frozen=True, tag_field="type", tag="header"):
    text: _Plain


class _Section(Struct, frozen=True, tag_field="type", tag="section", omit_defaults=True):
    text: _Plain | None = None
    fields: tuple[_Plain | _Marked, ...] = ()


class _Context(Struct, frozen=True, tag_field="type", tag="context"):
    elements: tuple[_Plain, ...]


class _Post(Struct, frozen=True):
    """`text` is shown in push notifications, and where blocks are not supported."""

    text: str
    blocks: tuple[_Header | _Section | _Context, ...]
    mrkdwn: bool = False
    parse: str = "none"
    link_names: bool = False
    unfurl_links: bool = False
    unfurl_media: bool = False


def message(incident: Incident, notice: Notice, receiver: Receiver) -> Message | None:
    """Post for a notice."""
    title = fitted(incident.opened.title, TITLE) or incident.id
    severity = f"{notice.severity} · " if notice.severity else ""
    post = _Post(
        text=escaped(f"{title}: {notice.message}", MAX_TEXT),
        blocks=(
            _Header(_Plain(escaped(title, MAX_HEADER))),
            _Section(_Plain(escaped(notice.message, MAX_TEXT))),
            *_sections(notice.details[:_MOST_DETAILS]),
            _Context((_Plain(escaped(f"{severity}{notice.what} · {incident.id} · {notice.at}", MAX_TEXT)),)),
        ),
    )
    return message_of(receiver, incident, notice, post, content_type="application/json; charset=utf-8")


def escaped(text: str, limit: int) -> str:
    """`text` cleaned and with entities, at most `limit` characters, none of them cut in two; never empty."""
    safe = [_ENTITIES.get(char, char) for char in clean(clean(text, 4 * MAX_TEXT).strip(), limit)]
    ends = list(itertools.accumulate(len(piece) for piece in safe))
    if not safe or ends[-1] <= limit:
        return "".join(safe) or "–"
    fitting = sum(end <= limit - 1 for end in ends)
    return "".join(safe[:fitting]) + "…"


def _sections(details: Sequence[tuple[str, str]]) -> Iterator[_Section]:
    """Two columns: name and text."""
    for start in range(0, len(details), MAX_FIELDS // 2):
        rows = details[start : start + MAX_FIELDS // 2]
        yield _Section(
            fields=tuple(
                itertools.chain.from_iterable(
                    (_Marked(f"*{escaped(name, MAX_HEADER)}*"), _Plain(escaped(text, MAX_FIELD))) for name, text in rows
                )
            )
        )
