"""Loader of dialect files. A new server is one more YAML file in this folder."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from latdoctor.dialects.model import (
    MAX_SUBJECTS,
    PLACEHOLDER,
    SERVER,
    BitMask,
    Dialect,
    NoValueRange,
    Rule,
    RuleKind,
    SubjectRule,
    Take,
    Term,
    parse_term,
)
from latdoctor.dialects.renaming import Renaming, renamed
from latdoctor.errors import DefinitionError, Problem
from latdoctor.evidence.catalogue import Signal, SignalKind, catalogue
from latdoctor.strict_yaml import Fields, Node, load
from latdoctor.units import unit

_FOLDER = Path(__file__).parent
_FAMILY = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SUBJECT = re.compile(r"[a-z]+/[^{}\s]*(?:\{[a-zA-Z_][a-zA-Z0-9_]*\}[^{}\s]*)*")
# Dimensions that need no scale: shares, counts, and counts per second.
_BARE = frozenset({"ratio", "count", "rate", "text"})
EITHER = "% or ratio"


@cache
def shipped() -> tuple[Dialect, ...]:
    """Return the dialects of this folder by id. Raises DefinitionError with the problems of all files."""
    return read_dialects(sorted(_FOLDER.glob("*.yaml")))


def shipped_signals() -> frozenset[str]:
    """The signals that the pages of these dialects may show."""
    return frozenset(signal for dialect in shipped() for signal in dialect.signals)


def read_dialects(paths: Sequence[Path]) -> tuple[Dialect, ...]:
    """Load the dialects of `paths`. Raises DefinitionError with every problem of every file, as file:line."""
    problems: list[Problem] = []
    found: dict[str, Dialect] = {}
    bases: dict[str, Renaming] = {}
    for path in paths:
        try:
            root = load(path)
        except DefinitionError as error:
            problems.extend(error.problems)
            continue
        fields = Fields(root, problems, "a dialect")
        renaming = _renaming(fields)
        dialect = _dialect(fields, path.stem, own_signals=renaming is None)
        if dialect.id in found:
            problems.append(Problem(root.where, f"the dialect {dialect.id!r} is defined twice"))
        found[dialect.id] = dialect
        if renaming is not None:
            bases[dialect.id] = renaming
    for name, renaming in bases.items():
        base = found.get(renaming.base)
        if base is None or renaming.base in bases:
            problems.append(Problem(renaming.where, f"like: {renaming.base!r} is not a dialect with names of its own"))
            continue
        found[name] = renamed(found[name], base, renaming)
    if problems:
        raise DefinitionError(problems)
    return tuple(found.values())


def _renaming(fields: Fields) -> Renaming | None:
    """`like: vllm` with `rename: {"vllm:": [vllm_, ray_vllm_]}`: the names of another dialect with other beginnings."""
    base = fields.text("like")
    prefixes = tuple(
        (prefix, tuple(part.text or "" for part in (node.value if isinstance(node.value, tuple) else (node,))))
        for prefix, node in fields.items("rename")
    )
    if bool(base) != bool(prefixes):
        fields.problem(fields.where, "'like' and 'rename' belong together")
    return Renaming(base, prefixes, fields.where) if base and prefixes else None


def _dialect(fields: Fields, stem: str, *, own_signals: bool) -> Dialect:
    problems = fields.problems
    identity = fields.text("id", required=True)
    if identity and (identity != stem or not _ID.fullmatch(identity)):
        fields.problem(fields.where, f"the id {identity!r} must be the file's name in small letters, {stem!r}")
    recognise = fields.texts("recognise")
    for name in recognise:
        if not _FAMILY.fullmatch(name):
            fields.problem(fields.where, f"recognise: {name!r} is not a family's name")
    if not recognise:
        fields.problem(fields.where, "a dialect needs 'recognise': metric families, one of which is on every such page")
    rules = tuple(_alternatives(signal, node, problems) for signal, node in fields.items("signals"))
    dialect = Dialect(
        id=identity,
        title=fields.text("title", required=True),
        recognise=recognise,
        subjects=tuple(_subject(Fields(node, problems, "a subject")) for node in _list(fields, "subjects")),
        rules=tuple(options for options in rules if options),
        bits=tuple(_bits(Fields(node, problems, "a bit mask")) for node in _list(fields, "bits")),
        blanks=tuple(_blank(Fields(node, problems, "a blank")) for node in _list(fields, "blanks")),
        idle=_terms(fields, "idle"),
        cached=fields.flag("cached"),
        hint=fields.text("hint"),
        most_subjects=fields.scalar("most_subjects", int, MAX_SUBJECTS),
    )
    if own_signals and not dialect.signals:
        fields.problem(fields.where, "a dialect needs at least one signal")
    fields.finish()
    return dialect


def _list(fields: Fields, key: str) -> tuple[Node, ...]:
    node = fields.node(key)
    if node is None:
        return ()
    if not isinstance(node.value, tuple):
        fields.problem(node.where, f"{key!r} must be a list")
        return ()
    return node.value


def _terms(fields: Fields, key: str, *, required: bool = False) -> tuple[Term, ...]:
    """Parse one term or a list of summed terms."""
    node = fields.node(key, required=required)
    if node is None:
        return ()
    parts = node.value if isinstance(node.value, tuple) else (node,)
    found: list[Term] = []
    for part in parts:
        if part.text is None:
            fields.problem(part.where, f"{key!r} must be a sample name or a list of them")
            continue
        try:
            found.append(parse_term(part.text))
        except ValueError as error:
            fields.problem(part.where, f"{key}: {error}")
    return tuple(found)


def _subject(fields: Fields) -> SubjectRule:
    identity = fields.scalar("id", _subject_template, "", required=True)
    parent = fields.scalar("parent", lambda text: text if text == SERVER else _subject_template(text), "")
    labels = tuple(PLACEHOLDER.findall(identity))
    if identity and not labels:
        fields.problem(fields.where, f"the subject {identity!r} contains no label")
    rule = SubjectRule(identity, labels, parent, tuple(PLACEHOLDER.findall(parent)), fields.texts("apart"))
    if not set(rule.parent_labels) <= set(labels):
        fields.problem(fields.where, f"the parent {parent!r} may only use labels of {identity!r}")
    fields.finish()
    return rule


def _subject_template(text: str) -> str:
    if not _SUBJECT.fullmatch(text):
        raise ValueError(f"{text!r} is not a subject such as model/{{model}} or node/local")
    return text


def _blank(fields: Fields) -> NoValueRange:
    low = fields.scalar("from", float, math.nan, required=True)
    blank = NoValueRange(low, fields.scalar("to", float, math.inf))
    if not blank.low <= blank.high:
        fields.problem(fields.where, "a blank's 'from' must not be greater than its 'to'")
    fields.finish()
    return blank


def _alternatives(signal: str, node: Node, problems: list[Problem]) -> tuple[Rule, ...]:
    known = catalogue().get(signal)
    if known is None:
        problems.append(Problem(node.where, f"unknown signal {signal!r}"))
        return ()
    if known.kind in (SignalKind.EVENT, SignalKind.P_VALUE):
        problems.append(Problem(node.where, f"{signal} is of kind {known.kind}, which metrics pages cannot provide"))
        return ()
    parts = node.value if isinstance(node.value, tuple) else (node,)
    return tuple(_rule(known, Fields(part, problems, f"signal {signal}")) for part in parts)


def _rule(signal: Signal, fields: Fields) -> Rule:
    kinds = [kind for kind in RuleKind if fields.node(kind) is not None]
    if len(kinds) != 1:
        fields.problem(fields.where, f"signal {signal.id} needs exactly one of {', '.join(RuleKind)}")
    kind = kinds[0] if kinds else RuleKind.GAUGE
    _check_kind(signal, kind, fields)
    scale = fields.text("scale")
    rule = Rule(
        signal=signal.id,
        kind=kind,
        where=fields.where,
        terms=_terms(fields, "of") if kind == RuleKind.LABEL else _terms(fields, kind),
        over=_terms(fields, "over", required=kind == RuleKind.RATIO)
        if kind in (RuleKind.RATIO, RuleKind.GAUGE)
        else (),
        less=_terms(fields, "less") if kind == RuleKind.GAUGE else (),
        held=_terms(fields, "held") if kind == RuleKind.RATE else (),
        quantile=fields.scalar("quantile", _quantile, 0.0, required=True) if kind == RuleKind.SUMMARY else 0.0,
        label=fields.text("label") if kind == RuleKind.LABEL else "",
        factor=_factor(signal, kind, scale, fields),
        percent_or_ratio=scale == EITHER,
        take=Take(fields.choice("take", tuple(Take), Take.MEAN)) if kind == RuleKind.GAUGE else Take.MEAN,
        sum_over=fields.texts("sum_over"),
        by=fields.text("by"),
        series=fields.flag("series") if kind in (RuleKind.RATE, RuleKind.GAUGE) else False,
        blank_from=fields.scalar("blank_from", float, None),
        note=fields.text("note"),
        zero_note=fields.text("zero_note"),
        hint=fields.text("hint"),
        at_least=fields.flag("at_least"),
    )
    if kind in (RuleKind.HISTOGRAM, RuleKind.SUMMARY) and len(rule.terms) > 1:
        fields.problem(fields.where, f"a {kind} takes one name (with alternatives), not a sum")
    fields.finish()
    return rule


def _quantile(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError(f"{text!r} is not a quantile between 0 and 1")
    return value


def _check_kind(signal: Signal, kind: RuleKind, fields: Fields) -> None:
    fits = {"distribution": (RuleKind.HISTOGRAM,), "text": (RuleKind.LABEL,)}.get(
        signal.kind, (RuleKind.GAUGE, RuleKind.SLOPE, RuleKind.RATE, RuleKind.RATIO, RuleKind.SUMMARY, RuleKind.LABEL)
    )
    # A scalar for `latency`, which is a distribution, would be lost.
    if kind not in fits:
        fields.problem(fields.where, f"{signal.id} is of kind {signal.kind}: it takes {' or '.join(fits)}, not {kind}")


def _factor(signal: Signal, kind: RuleKind, scale: str, fields: Fields) -> float:
    """The factor to the signal's base unit. A rate of a time is a share or a mean number: seconds per second."""
    if not scale or scale == EITHER:
        if not scale and signal.dimension not in _BARE:
            fields.problem(fields.where, f"{signal.id} is a {signal.dimension}: set its unit with 'scale'")
        if scale and signal.dimension != "ratio":
            fields.problem(
                fields.where, f"scale: {EITHER!r} applies to shares only, {signal.id} is a {signal.dimension}"
            )
        return 1.0
    try:
        found = unit(scale)
    except ValueError as error:
        fields.problem(fields.where, f"scale: {error}")
        return 1.0
    expected = signal.dimension
    if kind in (RuleKind.RATE, RuleKind.SLOPE):
        expected = {"ratio": "time", "count": "time", "throughput": "bytes", "rate": "count"}.get(expected, expected)
    if found.dimension != expected:
        fields.problem(fields.where, f"scale: {scale} is a {found.dimension}, {signal.id} needs a {expected}")
    return found.factor


def _bits(fields: Fields) -> BitMask:
    rule = Rule(
        signal="",
        kind=RuleKind.GAUGE,
        where=fields.where,
        terms=_terms(fields, "gauge", required=True),
        blank_from=fields.scalar("blank_from", float, None),
        hint=fields.text("hint"),
    )
    masks: list[tuple[str, int]] = []
    for signal, node in fields.items("signals"):
        known = catalogue().get(signal)
        if known is None or known.dimension not in ("ratio", "count"):
            fields.problem(node.where, f"{signal!r} is not a share or a count")
        try:
            masks.append((signal, int(node.text or "", 0)))
        except ValueError:
            fields.problem(node.where, f"{signal}: {node.text!r} is not a bit mask such as 0x4")
    if not masks:
        fields.problem(fields.where, "a bit mask needs 'signals'")
    fields.finish()
    return BitMask(rule, tuple(masks))
