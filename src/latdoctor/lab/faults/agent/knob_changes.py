"""Temporary changes of live knobs, rolled back at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from latdoctor.errors import OperationError
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.live_config import LiveConfig, StaleEtag

Knobs = Mapping[str, Mapping[str, Any]]


Turned = dict[tuple[str, str], Any]  # (group, knob) → value


_TRIES = 10  # of a change that conflicts with another client's


@asynccontextmanager
async def turned(live_config: LiveConfig, knobs: Knobs, held: Collection[tuple[str, str]]) -> AsyncIterator[None]:
    """Sets `knobs` for the time of the context and then restores the previous values, except of knobs that another
    client has changed since.

    `held`: knobs that other faults have changed. Raises UsageError for a bad value, NeedsRestart for a knob that is
    not live, OperationError for one in `held`.
    """
    twice = [f"{group}.{name}" for group, name in names(knobs) if (group, name) in held]
    if twice:
        raise OperationError(f"another fault has turned {', '.join(twice)}", next_step="end that one first")
    before, after = await _changed(live_config, lambda _: knobs)
    injected = {place: _value(after, place) for place in names(knobs) if _value(before, place) != _value(after, place)}
    yield
    # Not in a `finally`: this is not reached where the server itself ends, and then there is nothing to put back.
    await _changed(live_config, lambda now: _restoring(now, before, injected))


def names(knobs: Knobs) -> tuple[tuple[str, str], ...]:
    """Which knobs those are, as (group, knob)."""
    return tuple((group, name) for group, values in knobs.items() if isinstance(values, Mapping) for name in values)


async def _changed(
    live_config: LiveConfig, patch: Callable[[ServerConfig], Knobs]
) -> tuple[ServerConfig, ServerConfig]:
    """Applies what `patch` makes of the configuration; the configurations before and after."""
    for _ in range(_TRIES):
        before = live_config.config
        try:
            return before, await live_config.change(patch(before), frozenset({live_config.etag}))
        except StaleEtag:
            continue
    raise OperationError("the configuration is changed all the time", next_step="try again")


def _restoring(now: ServerConfig, before: ServerConfig, injected: Turned) -> Knobs:
    patch: dict[str, dict[str, Any]] = {}
    for place, value in injected.items():
        if _value(now, place) == value:
            group, name = place
            patch.setdefault(group, {})[name] = _value(before, place)
    return patch


def _value(config: ServerConfig, place: tuple[str, str]) -> Any:
    group, name = place
    return getattr(getattr(config, group), name)
