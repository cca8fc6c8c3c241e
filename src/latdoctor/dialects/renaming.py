"""One server's metrics under other names: behind Ray, through OpenTelemetry, or by another product built on it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from latdoctor.dialects.model import Dialect, Rule, Selector, Term

_TOTAL = "_total"


class Renaming(Struct, frozen=True):
    """The dialect `base` with other beginnings of its names: each of `prefixes` is (old, new ones in order)."""

    base: str
    prefixes: tuple[tuple[str, tuple[str, ...]], ...]
    where: str


def renamed(own: Dialect, base: Dialect, renaming: Renaming) -> Dialect:
    """`own` with the rules of `base` under the new names; its own subjects and rules take precedence."""
    known = {options[0].signal for options in own.rules}
    inherited = tuple(
        tuple(_rule(rule, renaming) for rule in options) for options in base.rules if options[0].signal not in known
    )
    return structs.replace(
        own,
        subjects=own.subjects or base.subjects,
        rules=(*own.rules, *inherited),
        idle=own.idle or tuple(_term(term, renaming) for term in base.idle),
        hint=own.hint or base.hint,
    )


def _rule(rule: Rule, renaming: Renaming) -> Rule:
    return structs.replace(
        rule,
        where=f"{renaming.where}, {rule.where.rpartition('/')[2]}",
        terms=tuple(_term(term, renaming) for term in rule.terms),
        over=tuple(_term(term, renaming) for term in rule.over),
        less=tuple(_term(term, renaming) for term in rule.less),
        held=tuple(_term(term, renaming) for term in rule.held),
    )


def _term(term: Term, renaming: Renaming) -> Term:
    options: dict[Selector, None] = {}
    for option in term.options:
        for name in _names(option.name, renaming):
            options.setdefault(structs.replace(option, name=name))
    return Term(tuple(options))


def _names(name: str, renaming: Renaming) -> Iterable[str]:
    """The new names; a counter is also known without its `_total`, which only the Prometheus client appends."""
    for old, new in renaming.prefixes:
        if name.startswith(old):
            for prefix in new:
                other = prefix + name[len(old) :]
                yield other
                if other.endswith(_TOTAL):
                    yield other.removesuffix(_TOTAL)
            return
    yield name
