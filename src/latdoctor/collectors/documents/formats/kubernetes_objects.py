"""Kubernetes objects as `kubectl get -o json` and `-o yaml` print them, and as the API returns them."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence

import msgspec

from latdoctor import strict_yaml
from latdoctor.collectors.documents.kubernetes import SIGNALS
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.objects import read_object
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import DefinitionError
from latdoctor.evidence.model import Evidence

_MOST_YAML = 8 << 20  # characters: a second reads some 400 KiB
_MANY = 2000  # documents of a damaged text
_SHORTER = (0, 1, 5)  # lines cut off a truncated document, one after the other
_ITEM = re.compile(r"- \S")
_STATUS_KEYS = frozenset({"containerStatuses", "initContainerStatuses", "podIP", "phase", "hostIP"})
_CONTAINER_KEYS = frozenset({"lastState", "state", "restartCount"})


def read_json(section: Section) -> Evidence:
    """The objects of a JSON text: one, a list, or one a line. Raises ValueError where none could be read."""
    gathered = Gathered(section)
    text = section.text.strip()
    text = text if text.startswith(("{", "[")) else "{" + text
    found = [read_object(gathered, _normal(raw), line) for raw, line in _documents(text)]
    return _evidence(gathered, read=any(found))


def _documents(text: str) -> Iterator[tuple[object, int]]:
    try:
        yield msgspec.json.decode(text.encode()), 0
        return
    except UNDECODABLE:
        pass  # several documents, or text behind it
    decoder = json.JSONDecoder()
    place, count = text.find("{"), 0
    while place >= 0 and count < _MANY:
        count += 1
        try:
            raw, end = decoder.raw_decode(text, place)
            yield raw, text.count("\n", 0, place)
        except (ValueError, RecursionError):
            end = place + 1
        place = text.find("{", end)


def read_yaml(section: Section) -> Evidence:
    """The objects of a YAML text; one that is damaged leaves a gap. Raises ValueError where none could be read."""
    gathered = Gathered(section)
    read: list[bool] = []
    text = section.text[:_MOST_YAML]
    if len(text) < len(section.text):
        gathered.damaged.append(f"only the first {_MOST_YAML >> 20} MiB are read; JSON has no such limit")
    chunks = list(_chunks(text.split("\n")))
    for number, (lines, first) in enumerate(chunks, 1):
        cuts = _SHORTER if number == len(chunks) else _SHORTER[:1]
        try:
            read.append(read_object(gathered, _normal(_yaml(lines, cuts, section.source)), first))
        except ValueError as error:
            gathered.damaged.append(f"from line {section.first_line + first}: {error}")
    return _evidence(gathered, read=any(read))


def _chunks(lines: list[str]) -> Iterator[tuple[list[str], int]]:
    """Each item of a list and each document by itself, so that damage stays local."""
    begun, in_items = 0, False
    for number, line in enumerate(lines):
        ends = line.startswith("---") or (in_items and _ITEM.match(line))
        if line.startswith("items:"):
            in_items, ends = True, True
        elif line[:1].isalpha():
            ends = ends or in_items
            in_items = False
        if ends:
            yield from _chunk(lines[begun:number], begun)
            begun = number
    yield from _chunk(lines[begun:], begun)


def _chunk(lines: list[str], first: int) -> Iterator[tuple[list[str], int]]:
    kept = [line for line in lines if not line.startswith(("---", "items:"))]
    if any(line.strip() for line in kept):
        if _ITEM.match(next(line for line in kept if line.strip())):
            kept = [f"  {line[2:]}" if line.startswith("- ") else line for line in kept]
        yield textwrap.dedent("\n".join(kept)).split("\n"), first


def _yaml(lines: list[str], cuts: Sequence[int], source: str) -> object:
    """Raises ValueError."""
    failed = ""
    for cut in cuts:
        part = lines[: len(lines) - cut]
        try:
            return strict_yaml.parse("\n".join(part).encode(), source).plain(_scalar)
        except DefinitionError as error:
            failed = failed or error.problems[0].what
    raise ValueError(failed)


def _scalar(text: str) -> str | None:
    return None if text in ("null", "~", "") else text


def _normal(raw: object) -> object:
    """An object, also where only its status or one container of it was pasted."""
    if isinstance(raw, list):
        return {"items": raw}
    if not isinstance(raw, dict) or "kind" in raw or "items" in raw:
        return raw
    if raw.keys() & _STATUS_KEYS:
        return {"kind": "Pod", "status": raw}
    if raw.keys() & _CONTAINER_KEYS:
        return {"kind": "Pod", "status": {"containerStatuses": [{"name": "container", **raw}]}}
    return raw


def _evidence(gathered: Gathered, *, read: bool) -> Evidence:
    if not read:
        raise ValueError(gathered.damaged[0] if gathered.damaged else "it has no object of a kind that is read")
    return gathered.evidence()


_READ_KINDS = (
    r"(?:Pod|Node|Event|Deployment|StatefulSet|ReplicaSet|HorizontalPodAutoscaler|PodMetrics|ResourceQuota)(?:List)?"
)
_VERSIONS = r"(?:v1|apps/v1\w*|extensions/v1\w*|autoscaling/v\w+|events\.k8s\.io/v\w+|metrics\.k8s\.io/v\w+)"
JSON = TextFormat(
    name="kubernetes-json",
    title="Kubernetes objects (JSON)",
    begins=re.compile(
        rf'^(?:\{{?\s{{0,8}}"apiVersion":\s?"{_VERSIONS}"|\{{\s{{0,8}}"(?:kind|type)":\s?"(?:{_READ_KINDS}|ADDED|MODIFIED)")'
    ),
    confirms=re.compile(rf'"kind":\s?"(?:{_READ_KINDS}|List)"'),
    read=read_json,
    provides=SIGNALS,
    entries=1,
    repeats=True,
    quotes_logs=True,
)
YAML = TextFormat(
    name="kubernetes-yaml",
    title="Kubernetes objects (YAML)",
    begins=re.compile(rf"^(?:apiVersion:\s+[\"']?{_VERSIONS}[\"']?\s*$|\s*(?:containerStatuses|lastState):\s*$)"),
    confirms=re.compile(
        rf"^\s*(?:- )?(?:kind:\s+(?:{_READ_KINDS}|List)\b|containerStatuses:|lastState:)", re.MULTILINE
    ),
    read=read_yaml,
    provides=SIGNALS,
    repeats=True,
    in_logs=True,
    quotes_logs=True,
)
