"""The last steps of a controller, each with its verification once that is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from latdoctor.lab.server.control.step import (
    ControlStep,
    Prediction,
    RouteReason,
    StepReason,
    StepVerdict,
    Verification,
)

REMEMBERED = 200  # steps


class StepLog:
    """`unix` gives Unix time. `on_step` gets each step when it is taken, and once more with its verification."""

    def __init__(self, unix: Callable[[], float], on_step: Callable[[ControlStep], None]) -> None:
        self._unix, self._on_step = unix, on_step
        self._steps: deque[ControlStep] = deque(maxlen=REMEMBERED)
        self._number = 0

    @property
    def steps(self) -> Sequence[ControlStep]:
        """The oldest first."""
        return tuple(self._steps)

    def add(
        self,
        knob: str,
        old: float,
        new: float,
        reason: StepReason | RouteReason,
        prediction: Prediction | None = None,
        *,
        applied: bool = True,
        undoes: int | None = None,
    ) -> ControlStep:
        """The step, with the next number and the present time."""
        self._number += 1
        step = ControlStep(self._number, self._unix(), knob, old, new, reason, applied, prediction, undoes)
        self._steps.append(step)
        self._on_step(step)
        return step

    def verified(self, step: ControlStep, verification: Verification) -> None:
        """Keep `verification` with the step."""
        verified = msgspec.structs.replace(step, verification=verification)
        for place, one in enumerate(self._steps):
            if one.number == step.number:
                self._steps[place] = verified
        self._on_step(verified)

    def superseded(self, step: ControlStep, seconds: float = 0.0) -> None:
        """The operator changed the knob before the effect of the step could be seen, `seconds` after it."""
        self.verified(step, Verification(StepVerdict.SUPERSEDED, None, seconds, 0.0, None))
