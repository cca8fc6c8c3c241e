"""The split keeps the order of time, and a method is chosen by the part before the one that it is scored on."""

from __future__ import annotations

import numpy as np
import pytest

from latdoctor.planning.forecast.backtest import MARGIN, Backtest, backtest, split_of
from latdoctor.planning.forecast.candidates import Candidates, Learn, known_origins
from latdoctor.planning.forecast.result import Method
from tests.planning.forecast.series import opened, random_walk


def test_no_target_of_a_part_is_known_when_it_begins() -> None:
    steps = opened(random_walk(1000), ahead=7)
    split = split_of(steps)
    assert split is not None
    assert known_origins(steps, split.fit_end).max() + 7 < split.fit_end
    assert split.choose.min() >= split.fit_end
    assert split.choose.max() + 7 < split.choose_end
    assert split.score.min() >= split.choose_end
    assert split.score.max() + 7 == len(steps) - 1


def test_gaps_are_neither_origins_nor_targets() -> None:
    values = random_walk(1000)
    values[900:910] = np.nan
    split = split_of(opened(values))
    assert split is not None
    assert not set(range(897, 910)) & set(split.score.tolist())


@pytest.mark.parametrize("count", [2, 20, 60])
def test_too_few_steps_have_no_split(count: int) -> None:
    assert split_of(opened(random_walk(count))) is None


def backtested(errors: dict[Method, tuple[float, float]]) -> Backtest:
    """Methods that err by a constant: in the part by which one is chosen, and in the last one."""
    steps = opened(random_walk(1000))
    split = split_of(steps)
    assert split is not None
    learned: list[int] = []

    def method(before: float, after: float) -> Learn:
        def learn(end: int) -> object:
            learned.append(end)
            return lambda origins: (
                steps.values[np.minimum(origins + steps.ahead, len(steps) - 1)]
                + (before if end == split.fit_end else after)
            )

        return learn  # type: ignore[return-value]

    found = backtest(steps, split, Candidates({name: method(*both) for name, both in errors.items()}, {}))
    assert set(learned) == {split.fit_end, split.choose_end, len(steps)}
    return found


def test_the_choice_is_not_made_by_the_part_that_is_scored() -> None:
    found = backtested({Method.LAST_VALUE: (10.0, 1.0), Method.RIDGE: (5.0, 50.0)})
    assert found.chosen is Method.RIDGE


def test_a_method_that_is_hardly_better_does_not_replace_a_simpler_one() -> None:
    hardly, clearly = 10 * (1 - MARGIN / 2), 10 * (1 - 2 * MARGIN)
    assert backtested({Method.LAST_VALUE: (10.0, 1), Method.LSTM: (hardly, 1)}).chosen is Method.LAST_VALUE
    assert backtested({Method.LAST_VALUE: (10.0, 1), Method.LSTM: (clearly, 1)}).chosen is Method.LSTM


def test_among_equals_the_simplest_is_taken() -> None:
    errors = {Method.LAST_VALUE: (20.0, 1.0), Method.LSTM: (9.9, 1.0), Method.RIDGE: (10.0, 1.0)}
    assert backtested(errors).chosen is Method.RIDGE
