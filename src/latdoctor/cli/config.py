"""`latdoctor.yaml`: the targets that are usually looked at, and their SLOs.

targets:
  checkout-bot:
    server: [http://127.0.0.1:8002/metrics]
    prometheus: http://prometheus:9090
    select: '{job="checkout-bot"}'
    prometheus_auth: prometheus.credentials      # a file: `Bearer TOKEN` or `Basic USER:PASSWORD`
    log: [/var/log/kern.log, access.log]
    log_pattern: '{time} {status} {ms}'      # where an access log is in no common form
    changes: [deployments.log]
    slo: {p99: 500ms, error_ratio: 1%}
    baseline: checkout-bot.baseline.json
    admin: [http://127.0.0.1:8002]               # what remediate may change
    admin_token: checkout-bot.token              # a file
    allow: [http://127.0.0.1:9000/flags]         # what the action http.json.set may change

`notify:` names who is told of incidents: `cli/receivers`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from latdoctor.cli.console import notice
from latdoctor.errors import DefinitionError, Problem
from latdoctor.notify.receiver import KINDS, NOTICE_KINDS, NoticeKind, Receiver, ReceiverKind
from latdoctor.strict_yaml import Fields, Node, load, one_of
from latdoctor.units import parse_share, parse_span

_NAME = re.compile(r"[A-Za-z0-9]+(?:[._ -][A-Za-z0-9]+)*")
_LONGEST_NAME = 80
# What a kind does not have, and why.
_HAS_NOT = {
    ReceiverKind.PAGERDUTY: {"url_file": "its address is no secret: url, or nothing for PagerDuty's own"},
    ReceiverKind.SLACK: {
        "url": "its address is a secret: write it into a file, url_file",
        "key_file": "its address is its key",
    },
    ReceiverKind.WEBHOOK: {},
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
        kind=ReceiverKind(kind) if kind in KINDS else ReceiverKind.PAGERDUTY,  # an invalid one is reported above
        url=fields.text("url"),
        url_file=path("url_file"),
        key_file=path("key_file"),
        on=_on(fields),
        allow=fields.texts("allow"),
        allow_private=fields.flag("allow_private"),
        authorities=path("ca"),
    )
    if kind in KINDS:
        _check(made, fields)
    fields.finish()
    return made


def _on(fields: Fields) -> tuple[NoticeKind, ...]:
    """Kinds to send; all by default. With an empty list only the SOP's `notify` selects this receiver."""
    node, found = fields.node("on"), fields.texts("on")
    for text in found:
        try:
            one_of(text, NOTICE_KINDS)
        except ValueError as error:
            fields.problem(node.where if node else fields.where, f"on: {error}")
    return NOTICE_KINDS if node is None else tuple(kind for kind in NOTICE_KINDS if kind in found)


def _check(made: Receiver, fields: Fields) -> None:
    for key, why in _HAS_NOT.get(made.kind, {}).items():
        if fields.node(key) is not None:
            fields.problem(fields.where, f"{made.kind} has no {key!r}: {why}")
    if made.kind == ReceiverKind.WEBHOOK and bool(made.url) == bool(made.url_file):
        fields.problem(fields.where, "a webhook has an address: 'url', or 'url_file' where it is a secret")
    if made.kind == ReceiverKind.WEBHOOK and made.url_file and not made.allow:
        fields.problem(fields.where, "an address in a file needs 'allow': what it has to lie under")


FILE = "latdoctor.yaml"


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """One configured target; paths are taken relative to the file that names them."""

    metrics: tuple[Path, ...] = ()
    trace: tuple[Path, ...] = ()
    nsys: tuple[Path, ...] = ()
    tensorrt: tuple[Path, ...] = ()
    torch_memory: tuple[Path, ...] = ()
    log: tuple[Path, ...] = ()
    changes: tuple[Path, ...] = ()
    name: str = ""
    server: tuple[str, ...] = ()
    prometheus: str = ""
    select: str = ""
    prometheus_auth: Path | None = None
    prometheus_ca: Path | None = None
    log_pattern: str = ""
    nvml: bool | None = None
    slo_p99: float | None = None
    slo_error_ratio: float | None = None
    baseline: Path | None = None
    admin: tuple[str, ...] = ()
    admin_token: Path | None = None
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file names, by name."""

    targets: Mapping[str, TargetSettings]
    receivers: Mapping[str, Receiver]
    left_aside: tuple[Problem, ...] = ()  # keys that nobody knows


def configuration() -> Configuration:
    """What ./latdoctor.yaml says, else the user's own file; nothing where there is neither. Raises DefinitionError."""
    return _read(whole=True)


def targets() -> Mapping[str, TargetSettings]:
    """The targets that are configured. Raises DefinitionError.

    What is wrong beside them keeps nobody from looking at them or from changing them back: an unknown key is said on
    stderr, and what is wrong with who is told, by whoever tells somebody. Where no targets stand in the file an unknown
    key may be theirs, misspelled.
    """
    found = _read(whole=False)
    for problem in found.left_aside:
        notice(f"{problem}: left aside")
    return found.targets


def _user_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "latdoctor" / FILE


def _read(*, whole: bool) -> Configuration:
    """`whole`: all of the file has to be right, and not its targets alone. Raises DefinitionError."""
    path = next((path for path in (Path(FILE), _user_file()) if path.is_file()), None)
    if path is None:
        return Configuration({}, {})
    problems: list[Problem] = []
    fields = Fields(load(path), problems, "configuration")
    found = {name: _target(name, node, path.parent, problems) for name, node in fields.items("targets")}
    targets_wrong = bool(problems)
    receivers = receivers_of(fields, path.parent)
    named = len(problems)
    fields.finish()
    misspelled = fields.node("targets") is None and len(problems) > named
    if problems and (whole or targets_wrong or misspelled):
        raise DefinitionError(problems, next_step=f"correct {path}")
    return Configuration(found, receivers, tuple(problems[named:]))


def _target(name: str, node: Node, base: Path, problems: list[Problem]) -> TargetSettings:
    fields = Fields(node, problems, f"target {name}")

    def paths(key: str) -> tuple[Path, ...]:
        return tuple(base / text for text in fields.texts(key))

    slo_node = fields.node("slo")
    slo = Fields(slo_node, problems, "slo") if slo_node else None

    def path(key: str) -> Path | None:
        text = fields.text(key)
        return base / text if text else None

    made = TargetSettings(
        name=name,
        server=fields.texts("server"),
        metrics=paths("metrics"),
        trace=paths("trace"),
        nsys=paths("nsys"),
        tensorrt=paths("tensorrt"),
        torch_memory=paths("torch_memory"),
        log=paths("log"),
        prometheus=fields.text("prometheus"),
        select=fields.text("select"),
        prometheus_auth=path("prometheus_auth"),
        prometheus_ca=path("prometheus_ca"),
        log_pattern=fields.text("log_pattern"),
        changes=paths("changes"),
        nvml=fields.flag("nvml") if fields.node("nvml") else None,
        slo_p99=slo.scalar("p99", parse_span, None) if slo else None,
        slo_error_ratio=slo.scalar("error_ratio", parse_share, None) if slo else None,
        baseline=path("baseline"),
        admin=fields.texts("admin"),
        admin_token=path("admin_token"),
        allow=fields.texts("allow"),
    )
    if slo:
        slo.finish()
    fields.finish()
    return made
