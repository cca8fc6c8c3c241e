"""The parser of the condition language; `ast.py` shows the language and holds its types."""

from __future__ import annotations

import re
from dataclasses import replace

from latdoctor.conditions.ast import (
    OPERATORS,
    SLO_TERMS,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Constant,
    CountTerm,
    Given,
    Not,
    Prefer,
    Reference,
    SignalTerm,
)
from latdoctor.errors import Problem
from latdoctor.evidence.catalogue import Signal, SignalKind, catalogue
from latdoctor.evidence.model import Labels, Value
from latdoctor.strict_yaml import Fields, Node
from latdoctor.units import BARE_DIMENSIONS, Quantity, parse_quantity, parse_share

_KINDS = ("all", "any", "not", "prefer", "is")


def parse_condition(node: Node, problems: list[Problem]) -> Condition | None:
    """The condition written at `node`; what is wrong with it is added to `problems`."""
    if node.text is not None:
        return _comparison(node.text, node.where, problems)
    if not isinstance(node.value, dict) or not node.value:
        problems.append(Problem(node.where, "a condition is a comparison, or one of all, any, not, prefer, is"))
        return None
    kind = next((word for word in _KINDS if word in node.value), "")
    return _combined(Fields(node, problems, "condition"), kind, problems)


def _combined(fields: Fields, kind: str, problems: list[Problem]) -> Condition | None:
    built: Condition | None = None
    if kind in ("all", "any"):
        parts = _parts(fields, kind, problems)
        if parts:
            built = AllOf(parts) if kind == "all" else AnyOf(parts)
        if kind == "all" and fields.node("given") is not None:
            given = _part(fields, "given", problems)
            built = Given(built, given) if built and given else None
    elif kind == "not":
        part = _part(fields, "not", problems)
        built = Not(part) if part else None
    elif kind == "prefer":
        first, otherwise = _part(fields, "prefer", problems), _part(fields, "otherwise", problems)
        built = Prefer(first, otherwise) if first and otherwise else None
    elif kind == "is":
        built = _sure(fields, problems)
    fields.finish()
    return built


def _part(fields: Fields, key: str, problems: list[Problem]) -> Condition | None:
    node = fields.node(key, required=True)
    return parse_condition(node, problems) if node else None


def _parts(fields: Fields, key: str, problems: list[Problem]) -> tuple[Condition, ...]:
    node = fields.node(key)
    if node is None or not isinstance(node.value, tuple) or not node.value:
        problems.append(Problem(fields.where, f"{key!r} takes a list of conditions"))
        return ()
    parsed = [parse_condition(item, problems) for item in node.value]
    return tuple(part for part in parsed if part is not None)


def _sure(fields: Fields, problems: list[Problem]) -> Condition | None:
    node = fields.node("is", required=True)
    bounds = fields.texts("ramp")
    inner = _comparison(node.text or "", node.where, problems) if node else None
    if inner is None:
        return None
    try:
        return _between(inner, bounds)
    except ValueError as error:
        problems.append(Problem(fields.where, str(error)))
        return None


def _between(inner: Comparison, bounds: tuple[str, ...]) -> Comparison:
    """`inner` with `bounds` as its [clear, certain]. Raises ValueError."""
    signal = catalogue()[inner.left.signal]
    if signal.kind in (SignalKind.FLAG, SignalKind.P_VALUE):
        raise ValueError(f"sure does not go with a {signal.kind} ({signal.id})")
    try:
        clear, certain = (_constant_number(text, signal) for text in bounds)
    except ValueError as error:
        raise ValueError(f"sure takes two quantities, [clear, certain]: {error}") from error
    rising = inner.operator in (">", ">=")
    limit = inner.right.values[0] if isinstance(inner.right, Constant) else None
    if inner.operator not in ("<", "<=", ">", ">=") or not isinstance(limit, float):
        raise ValueError("sure goes with < <= > >= and a constant limit")
    if not (clear < limit < certain if rising else certain < limit < clear):
        raise ValueError(f"sure: the limit of {inner.text!r} must lie between clear and certain")
    return replace(inner, ramp=(clear, certain))


def right_of(comparison: Comparison) -> str:
    """What stands behind the operator, as its author wrote it."""
    return comparison.text[_head(comparison.text) :]


def with_limit(comparison: Comparison, limit: str, ramp: tuple[str, ...] = ()) -> Comparison:
    """`comparison` with `limit` in the place of its right side; `sure` replaces its bounds. Raises ValueError.

    Bounds that are kept must still have the limit between them.
    """
    changed = _parse_comparison(comparison.text[: _head(comparison.text)] + limit.strip())
    if ramp:
        return _between(changed, ramp)
    if comparison.ramp is None:
        return changed
    number = changed.right.values[0] if isinstance(changed.right, Constant) else None
    low, high = sorted(comparison.ramp)
    if not isinstance(number, float) or not low < number < high:
        raise ValueError(
            f"{limit.strip()!r} leaves the bounds between which {comparison.text!r} speaks: give them too, "
            "as {limit: …, ramp: [clear, certain]}"
        )
    return replace(changed, ramp=comparison.ramp)


def _head(text: str) -> int:
    """Where the right side of a comparison begins that was parsed from `text`."""
    _, _, end = _parse_left(text)
    match = _OPERATOR.match(text, end)
    if not match:
        raise ValueError(f"{text!r} is no comparison")
    return match.end()


_COUNT = re.compile(r"count\(\s*([\w.]+)\s*(?:,\s*(\w+)\s+(in|not in)\s*(\[[^\]]*\])\s*)?\)")
_SIGNAL = re.compile(r"([A-Za-z][\w.]*)(?:\{([^}]*)\})?")
_OPERATOR = re.compile(r"\s*(<=|>=|!=|<|>|=|in\b|within\s+(\S+)\s+of\b)\s*")
_FACTOR = re.compile(r"([\d.]+)\s*x\s+")


def _comparison(text: str, where: str, problems: list[Problem]) -> Comparison | None:
    try:
        return _parse_comparison(text)
    except ValueError as error:
        problems.append(Problem(where, f"{text!r}: {error}"))
        return None


def _parse_comparison(text: str) -> Comparison:
    stripped = text.strip()
    left, signal, end = _parse_left(stripped)
    match = _OPERATOR.match(stripped, end)
    if not match:
        raise ValueError(f"expected one of {' '.join(OPERATORS)} after {stripped[:end]!r}")
    operator = match[1].split()[0]
    rest = stripped[match.end() :]
    if operator == "in":
        if not (rest.startswith("[") and rest.endswith("]")):
            raise ValueError("`in` takes a list such as [48, 79]")
        chosen = Constant(tuple(_constant(item, signal) for item in _items(rest)), rest)
        _check_kinds(signal, operator, chosen)
        return Comparison(left, operator, chosen, stripped)
    tolerance = parse_share(match[2]) if operator == "within" else 0.0
    right = _parse_right(rest, signal)
    _check_kinds(signal, operator, right)
    return Comparison(left, operator, right, stripped, tolerance=tolerance)


def _items(text: str) -> list[str]:
    """The items of `[48, 63]`. Raises ValueError where there is none."""
    items = [item.strip() for item in text[1:-1].split(",") if item.strip()]
    if not items:
        raise ValueError("an empty list matches nothing")
    return items


def _parse_left(text: str) -> tuple[SignalTerm | CountTerm, Signal, int]:
    counted = _COUNT.match(text)
    if counted:
        signal = _known(counted[1])
        if signal.kind != SignalKind.EVENT:
            raise ValueError(f"count() takes an event signal, {signal.id} is a {signal.kind}")
        return _count_term(counted), signal, counted.end()
    if text.startswith("count("):
        raise ValueError("count(…) reads count(event) or count(event, field in [48, 63])")
    named = _SIGNAL.match(text)
    if not named:
        raise ValueError("expected a signal on the left")
    signal = _known(named[1])
    if signal.kind in (SignalKind.EVENT, SignalKind.DISTRIBUTION):
        article = "an" if signal.kind == SignalKind.EVENT else "a"
        raise ValueError(f"{signal.id} is {article} {signal.kind}: compare a value of it (count(…), {signal.id}.p99)")
    return SignalTerm(signal.id, _labels(named[2])), signal, named.end()


def _count_term(match: re.Match[str]) -> CountTerm:
    if not match[2]:
        return CountTerm(match[1])
    values = tuple(_number_or_text(item) for item in _items(match[4]))
    return CountTerm(match[1], match[2], values, match[3] == "not in")


def _labels(text: str | None) -> Labels:
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair.strip()]
    chosen = {key.strip(): value.strip() for key, sign, value in pairs if key.strip() and sign}
    if len(chosen) < len(pairs):
        raise ValueError("a label filter reads {label=value}, each label once")
    return tuple(sorted(chosen.items()))


def _known(name: str) -> Signal:
    found = catalogue().get(name)
    if found is None:
        raise ValueError(f"{name!r} is not in the signal catalogue")
    return found


def _parse_right(text: str, signal: Signal) -> Reference | Constant:
    match = _FACTOR.match(text)
    factor, rest = (_factor(match[1]), text[match.end() :]) if match else (1.0, text)
    name = rest.strip()
    if name in ("baseline", "before"):
        return Reference(name, factor)
    if name in SLO_TERMS:
        if SLO_TERMS[name] != signal.dimension:
            raise ValueError(f"{name} is a {SLO_TERMS[name]}, {signal.id} is a {signal.dimension}")
        return Reference(name, factor)
    if name in catalogue():
        other = catalogue()[name]
        if other.dimension != signal.dimension or other.kind in (SignalKind.EVENT, SignalKind.DISTRIBUTION):
            raise ValueError(f"{signal.id} and {name} cannot be compared ({signal.dimension}, {other.dimension})")
        return Reference(name, factor)
    if match:
        raise ValueError(f"after 'N x' expected baseline, before, an slo term or a signal, not {name!r}")
    return Constant((_constant(name, signal),), name)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if factor <= 0:
        raise ValueError("a factor is above zero")
    return factor


def _constant(text: str, signal: Signal) -> Value:
    if signal.kind != SignalKind.TEXT:
        return _constant_number(text, signal)
    if not text:
        raise ValueError("expected a text on the right")
    return text


def _constant_number(text: str, signal: Signal) -> float:
    quantity: Quantity = parse_quantity(text)
    expected = "count" if signal.kind in (SignalKind.EVENT, SignalKind.FLAG) else signal.dimension
    bare = quantity.dimension == "count" and expected in BARE_DIMENSIONS
    if quantity.dimension != expected and not bare:
        raise ValueError(f"{text!r} is a {quantity.dimension}, {signal.id} is a {expected}")
    return quantity.value


def _number_or_text(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text


def _check_kinds(signal: Signal, operator: str, right: Reference | Constant) -> None:
    if signal.kind == SignalKind.TEXT and (operator not in ("=", "!=", "in") or isinstance(right, Reference)):
        raise ValueError(f"{signal.id} is a text: compare it with = != or in")
    if signal.kind == SignalKind.P_VALUE and (operator not in ("<", "<=") or isinstance(right, Reference)):
        raise ValueError(f"{signal.id} is a p-value: it can only be below a limit such as 0.01")
