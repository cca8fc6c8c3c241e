"""`notify:` in latdoctor.yaml: who is told of incidents. Paths are relative to the file that names them.

notify:
  on-call:
    kind: pagerduty
    key_file: pagerduty.key            # a file with the integration key
    on: [alert, taken, diagnosis, change, rollback, late, closed]
  channel:
    kind: slack
    url_file: slack.url                # a file with the address: it is a secret
  archive:
    kind: webhook
    url: https://hooks.example.org/incidents
    key_file: webhook.key              # a file with `whsec_…`: what it is signed with
    allow_private: true                # it may lead into our own network
    ca: own-authority.pem
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from latdoctor.incident.notify.receiver import KINDS, PAGERDUTY, SLACK, WEBHOOK, WHATS, Receiver
from latdoctor.yamlfile import Fields, Node, one_of

_NAME = re.compile(r"[A-Za-z0-9]+(?:[._ -][A-Za-z0-9]+)*")
_LONGEST_NAME = 80
# What a kind does not have, and why.
_HAS_NOT = {
    PAGERDUTY: {"url_file": "its address is no secret: url, or nothing for PagerDuty's own"},
    SLACK: {"url": "its address is a secret: write it into a file, url_file", "key_file": "its address is its key"},
    WEBHOOK: {},
}


def receivers_of(fields: Fields, base: Path) -> Mapping[str, Receiver]:
    """By name; what is wrong is added to the problems of `fields`."""
    return {name: _receiver(name, node, base, fields) for name, node in fields.items("notify")}


def _receiver(name: str, node: Node, base: Path, outer: Fields) -> Receiver:
    fields = Fields(node, outer.problems, f"receiver {name}")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        fields.problem(node.where, f"{name[:_LONGEST_NAME]!r} is no name: letters and digits, with - . _ between them")
    kind = fields.choice("kind", KINDS, "", required=True)

    def path(key: str) -> Path | None:
        text = fields.text(key)
        return base / text if text else None

    made = Receiver(
        name=name,
        kind=kind,
        url=fields.text("url"),
        url_file=path("url_file"),
        key_file=path("key_file"),
        on=_on(fields),
        allow=fields.texts("allow"),
        allow_private=fields.flag("allow_private"),
        authorities=path("ca"),
    )
    _check(made, fields)
    fields.finish()
    return made


def _on(fields: Fields) -> tuple[str, ...]:
    """All where nothing is said; an empty list is nobody but whom the SOP names."""
    node, found = fields.node("on"), fields.texts("on")
    for text in found:
        try:
            one_of(text, WHATS)
        except ValueError as error:
            fields.problem(node.where if node else fields.where, f"on: {error}")
    return WHATS if node is None else found


def _check(made: Receiver, fields: Fields) -> None:
    for key, why in _HAS_NOT.get(made.kind, {}).items():
        if fields.node(key) is not None:
            fields.problem(fields.where, f"{made.kind} has no {key!r}: {why}")
    if made.kind == WEBHOOK and bool(made.url) == bool(made.url_file):
        fields.problem(fields.where, "a webhook has an address: 'url', or 'url_file' where it is a secret")
    if made.kind == WEBHOOK and made.url_file and not made.allow:
        fields.problem(fields.where, "an address in a file needs 'allow': what it has to lie under")
