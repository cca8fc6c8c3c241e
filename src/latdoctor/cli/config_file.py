"""`latdoctor.yaml`: the targets with their SLOs, and the receivers of notifications.

The file is ./latdoctor.yaml, where it is trusted (config_trust.py), else ~/.config/latdoctor/latdoctor.yaml. Its keys
are the fields of `TargetConfig` and `ReceiverConfig`; docs/configuration.md and docs/latdoctor.yaml.schema.json are
generated from them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct, structs

from latdoctor.cli.config_trust import STORE, Grants, TrustStore, grants, require_trust
from latdoctor.cli.console import notice, notice_once
from latdoctor.cli.credential_files import misplaced, warn_if_readable
from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.notify.receiver_config import KINDS, NOTICE_KINDS, NoticeKind, Receiver, ReceiverKind
from latdoctor.regular_file import read_with_status, written_by_others
from latdoctor.strict_yaml import MAX_BYTES, Fields, Node, one_of, parse
from latdoctor.units import parse_share, parse_span

FILE = "latdoctor.yaml"
_NAME = re.compile(r"[A-Za-z0-9]+(?:[._ -][A-Za-z0-9]+)*")
_LONGEST_NAME = 80
T = TypeVar("T", bound=Struct)


class Duration(float):
    """Seconds; written with a unit, such as 500ms."""


class Ratio(float):
    """A share of 1; written as 1% or 0.01."""


def _described(text: str, *examples: Any) -> Meta:
    return Meta(description=text, examples=list(examples) or None)


class SloConfig(Struct, frozen=True, kw_only=True):
    """The service level objective of a target."""

    p99: Annotated[Duration | None, _described("The highest acceptable P99 latency.", "500ms")] = None
    error_ratio: Annotated[Ratio | None, _described("The highest acceptable share of failed requests.", "1%")] = None


class TargetConfig(Struct, frozen=True, kw_only=True):
    """A target: the sources to read, its SLO and what may be changed. Paths are relative to the file."""

    server: Annotated[tuple[str, ...], _described("Metrics pages.", ["http://127.0.0.1:8002/metrics"])] = ()
    prometheus: Annotated[str, _described("A Prometheus server.", "http://prometheus:9090")] = ""
    select: Annotated[str, _described("The series of this target there.", '{job="checkout-bot"}')] = ""
    prometheus_auth: Annotated[
        Path | None, _described("A file with `Bearer TOKEN` or `Basic USER:PASSWORD`.", "prometheus.credentials")
    ] = None
    prometheus_ca: Annotated[Path | None, _described("Certificates (PEM) trusted for that server.", "ca.pem")] = None
    kube: Annotated[tuple[str, ...], _described("Workloads on Kubernetes.", ["prod/checkout-bot"])] = ()
    kube_context: Annotated[str, _described("The kubeconfig's context for them.", "prod-eu")] = ""
    metrics: Annotated[tuple[Path, ...], _described("Saved metrics pages.", ["page.prom"])] = ()
    trace: Annotated[tuple[Path, ...], _described("Torch profiler traces.", ["trace.json.gz"])] = ()
    nsys: Annotated[tuple[Path, ...], _described("Nsight Systems exports.", ["report.sqlite"])] = ()
    tensorrt: Annotated[tuple[Path, ...], _described("Outputs of trtexec.", ["profile.json"])] = ()
    torch_memory: Annotated[tuple[Path, ...], _described("Memory snapshots of torch.cuda.", ["memory.pickle"])] = ()
    log: Annotated[tuple[Path, ...], _described("Driver, application and access logs.", ["/var/log/kern.log"])] = ()
    log_pattern: Annotated[str, _described("The format of access log lines.", "{time} {status} {ms}")] = ""
    changes: Annotated[tuple[Path, ...], _described("Files with dated changes.", ["deployments.log"])] = ()
    nvml: Annotated[bool | None, _described("Read the GPU driver of this machine.", True)] = None
    gpu: Annotated[
        Literal["", "none"],
        _described("`none` where it computes without a GPU: checks of GPUs then do not apply.", "none"),
    ] = ""
    slo: Annotated[SloConfig | None, _described("The objectives.", {"p99": "500ms", "error_ratio": "1%"})] = None
    baseline: Annotated[Path | None, _described("Healthy values (baseline record).", "healthy.json")] = None
    admin: Annotated[tuple[str, ...], _described("Servers that remediate may change.", ["http://127.0.0.1:8002"])] = ()
    admin_token: Annotated[Path | None, _described("A file with the admin token.", "checkout-bot.token")] = None
    allow: Annotated[
        tuple[str, ...],
        _described("Addresses that the action http.json.set may change.", ["http://127.0.0.1:9000/flags"]),
    ] = ()


class TargetSettings(TargetConfig, frozen=True, kw_only=True):
    """A configured target with its name; the default value is an unconfigured one."""

    name: str = ""

    @property
    def slo_p99(self) -> float | None:
        return float(self.slo.p99) if self.slo and self.slo.p99 is not None else None

    @property
    def slo_error_ratio(self) -> float | None:
        return float(self.slo.error_ratio) if self.slo and self.slo.error_ratio is not None else None

    @property
    def files(self) -> tuple[Path, ...]:
        captures = (*self.trace, *self.nsys, *self.tensorrt, *self.torch_memory)
        return (*self.metrics, *captures, *self.log, *self.changes)


class ReceiverConfig(Struct, frozen=True, kw_only=True):
    """A receiver of notifications about incidents (docs/notify.md). Paths are relative to the file."""

    kind: Annotated[str, Meta(description="The kind of receiver.", extra_json_schema={"enum": list(KINDS)})]
    url: Annotated[str, _described("Its address, if that is no secret.", "https://hooks.example.com/latdoctor")] = ""
    url_file: Annotated[Path | None, _described("A file with its address, if that is secret.", "slack.url")] = None
    key_file: Annotated[Path | None, _described("A file with the routing or signing key.", "pagerduty.key")] = None
    on: Annotated[tuple[str, ...] | None, _described("The events to send; all by default.", ["alert", "closed"])] = None
    allow: Annotated[
        tuple[str, ...], _described("Prefixes that its address must have.", ["https://hooks.example.com"])
    ] = ()
    allow_private: Annotated[bool, _described("The address may be in a private network.", False)] = False
    ca: Annotated[Path | None, _described("Certificates (PEM) trusted for it.", "ca.pem")] = None


class ConfigFile(Struct, frozen=True, kw_only=True):
    """latdoctor.yaml"""

    targets: Annotated[dict[str, TargetConfig], Meta(description="The targets by name.")] = {}
    notify: Annotated[dict[str, ReceiverConfig], Meta(description="The receivers by name.")] = {}


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of the file."""

    targets: Mapping[str, TargetSettings]
    receivers: Mapping[str, Receiver]
    unknown: tuple[Problem, ...] = ()  # keys of the top level that were ignored


def configuration() -> Configuration:
    """The whole configuration; empty without a file. Raises DefinitionError."""
    return _read(whole=True)


def targets() -> Mapping[str, TargetSettings]:
    """The configured targets. Raises DefinitionError.

    A problem elsewhere in the file must not prevent a diagnosis or a rollback: unknown keys are reported on stderr, and
    invalid receivers by the commands that notify. In a file without targets an unknown key may be a misspelled one.
    """
    found = _read(whole=False)
    for problem in found.unknown:
        notice(f"{problem}: ignored")
    return found.targets


def user_folder() -> Path:
    """$XDG_CONFIG_HOME/latdoctor, else ~/.config/latdoctor. Raises UsageError for a user without a home."""
    general = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:  # the XDG base directory specification: a path that is not absolute is ignored
        return (general if general.is_absolute() else Path.home() / ".config") / "latdoctor"
    except RuntimeError as error:
        raise UsageError("this user has no home", next_step="set XDG_CONFIG_HOME=FOLDER") from error


def trust_store() -> TrustStore:
    return TrustStore(user_folder() / STORE)


@dataclass(frozen=True, slots=True)
class ConfigContent:
    """A configuration as it was read once: its bytes are what is parsed, and what is trusted."""

    path: Path
    raw: bytes
    status: os.stat_result
    configuration: Configuration

    @property
    def grants(self) -> Grants:
        found = self.configuration
        return grants(found.targets.values(), found.receivers.values(), self.path.parent)


def _read(*, whole: bool) -> Configuration:
    """`whole`: problems of receivers and unknown keys are errors too. Raises DefinitionError, UntrustedConfigError."""
    user = user_folder() / FILE
    # Whatever has the name counts: a pipe or folder in its place is an error, not the absence of a configuration.
    path = next((path for path in (Path(FILE), user) if os.path.lexists(path)), None)
    if path is None:
        return Configuration({}, {})
    found = read_configuration(path, whole=whole)
    if path == user or (user.is_file() and path.samefile(user)):
        _warn_if_writable(found)
    else:
        require_trust(path, found.raw, found.status, found.grants, trust_store())
    for file in _credential_files(found.configuration):
        warn_if_readable(file)
    return found.configuration


def read_configuration(path: Path, *, whole: bool) -> ConfigContent:
    """The file at `path`, trusted or not. `whole` as for `_read`. Raises DefinitionError."""
    try:
        raw, status = read_with_status(path, MAX_BYTES)
    except OSError as error:
        problem = Problem(str(path), f"cannot be read: {error.strerror}")
        raise DefinitionError([problem], next_step=f"correct {path}, or remove it") from error
    problems: list[Problem] = []
    fields = Fields(parse(raw, str(path)), problems, "configuration")
    found = {name: _target(name, node, path.parent, problems) for name, node in fields.items("targets")}
    targets_wrong = bool(problems)
    receivers = {name: _receiver(name, node, path.parent, fields) for name, node in fields.items("notify")}
    known = len(problems)
    fields.finish()
    misspelled = fields.node("targets") is None and len(problems) > known
    if problems and (whole or targets_wrong or misspelled):
        raise DefinitionError(problems, next_step=f"correct {path}")
    return ConfigContent(path, raw, status, Configuration(found, receivers, tuple(problems[known:])))


def _warn_if_writable(found: ConfigContent) -> None:
    """The user's own file needs no trust; other users must not be able to replace its content."""
    why = written_by_others(found.status) or written_by_others(found.path.parent.stat())
    if why:
        notice_once(f"{found.path}: the file or its folder {why}. Next: chmod go-w {found.path.parent} {found.path}")


def _credential_files(found: Configuration) -> Iterator[Path | None]:
    for target in found.targets.values():
        yield from (target.admin_token, target.prometheus_auth)
    for receiver in found.receivers.values():
        yield from (receiver.url_file, receiver.key_file)


def converted(node: Node, kind: type[T], base: Path, problems: list[Problem], what: str) -> T | None:
    """The mapping `node` as a `kind`; each problem is added with its line, and None returned if there is any."""
    fields, count, values = Fields(node, problems, what), len(problems), {}
    hints = get_type_hints(kind)
    for field in structs.fields(kind):
        child = fields.node(field.encode_name, required=field.required)
        if child is None:
            continue
        if hints[field.name] == SloConfig | None:
            values[field.name] = converted(child, SloConfig, base, problems, "slo")
            continue
        try:
            values[field.name] = msgspec.convert(
                _plain(child), field.type, strict=False, dec_hook=partial(_custom, base)
            )
        except (msgspec.ValidationError, ValueError) as error:
            message = str(error).partition(" - at ")[0].replace("`", "")
            fields.problem(child.where, f"{field.encode_name}: {message}")
    fields.finish()
    return kind(**values) if len(problems) == count else None


def _plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: _plain(child) for key, child in node.value.items()}
    return [_plain(child) for child in node.value] if isinstance(node.value, tuple) else node.value


def _custom(base: Path, kind: type, value: object) -> object:
    """Raises ValueError for a text that is no `kind`."""
    if kind is Path:
        return base / str(value)
    return kind((parse_span if kind is Duration else parse_share)(str(value)))


def _target(name: str, node: Node, base: Path, problems: list[Problem]) -> TargetSettings:
    found = converted(node, TargetConfig, base, problems, f"target {name}")
    if found:
        _check_credentials(node, ("admin_token", "prometheus_auth"), found, base, problems)
    return TargetSettings(name=name, **structs.asdict(found)) if found else TargetSettings(name=name)


def _receiver(name: str, node: Node, base: Path, outer: Fields) -> Receiver:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        outer.problem(node.where, f"{name[:_LONGEST_NAME]!r} is no valid name: use letters and digits, joined by - . _")
    found = converted(node, ReceiverConfig, base, outer.problems, f"receiver {name}")
    if found is None:
        return Receiver(name=name, kind=ReceiverKind.WEBHOOK)  # never used: the problem is raised
    _check_credentials(node, ("url_file", "key_file"), found, base, outer.problems)
    messages = _receiver_problems(found)
    for message in messages:
        outer.problem(node.where, message)
    if messages:
        return Receiver(name=name, kind=ReceiverKind.WEBHOOK)
    values = structs.asdict(found) | {"kind": ReceiverKind(found.kind)}
    values["on"] = NOTICE_KINDS if found.on is None else tuple(NoticeKind(text) for text in found.on)
    return Receiver(name=name, authorities=values.pop("ca"), **values)


def _check_credentials(node: Node, keys: Sequence[str], found: Struct, base: Path, problems: list[Problem]) -> None:
    """Adds a problem for each file of credentials that is neither beside the configuration nor in the user's folder."""
    for key in keys:
        file = getattr(found, key)
        why = misplaced(file, (base, user_folder())) if file else ""
        if why and isinstance(node.value, dict):
            problems.append(Problem(node.value[key].where, f"{key}: {why}"))


# Keys that a kind does not have, and why.
_NOT_ALLOWED: Mapping[str, Mapping[str, str]] = {
    ReceiverKind.PAGERDUTY: {"url_file": "its address is no secret: use url, or omit it for PagerDuty's own"},
    ReceiverKind.SLACK: {
        "url": "its address is a secret: write it to a file, url_file",
        "key_file": "its address is its key",
    },
    ReceiverKind.WEBHOOK: {},
}


def _receiver_problems(found: ReceiverConfig) -> Sequence[str]:
    problems = []
    for key, allowed, value in (("kind", KINDS, (found.kind,)), ("on", NOTICE_KINDS, found.on or ())):
        for text in value:
            try:
                one_of(text, allowed)
            except ValueError as error:
                problems.append(f"{key}: {error}")
    for key, why in _NOT_ALLOWED.get(found.kind, {}).items():
        if getattr(found, key):
            problems.append(f"{found.kind} has no {key!r}: {why}")
    if found.kind == ReceiverKind.WEBHOOK and bool(found.url) == bool(found.url_file):
        problems.append("a webhook needs an address: 'url', or 'url_file' if it is secret")
    if found.kind == ReceiverKind.WEBHOOK and found.url_file and not found.allow:
        problems.append("an address in a file needs 'allow': the prefixes that it must have")
    return problems


def schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    texts = {Path: "A path.", Duration: "A duration with its unit.", Ratio: "A share between 0% and 100%."}

    def custom(kind: type) -> dict[str, Any]:
        return {"type": "string", "title": texts[kind]}

    document = msgspec.json.schema(ConfigFile, schema_hook=custom)
    for definition in document["$defs"].values():
        definition["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
