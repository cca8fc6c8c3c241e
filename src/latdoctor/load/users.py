"""The users of a phase as state machines: they arrive, send a turn, wait, think, send the next, and leave.

```
arrives ─▶ waits for the answer ─▶ answered, last turn ───────────────▶ completed
   ▲           │        │  └─────▶ answered ─▶ thinks ─▶ next turn
   │           │        └────────▶ failed after all retries ─▶ leaves (`leave_after_failure`), or thinks
population     └─────────────────▶ patience is over ─▶ hangs up and leaves
```

Fixed before the run, by the seed alone: when users arrive, and of each user the number of turns, the patience, the
time to think after each turn, whether a failure makes it leave, and the content of each turn (given the mix at its
time). Not fixed: when a turn after the first is sent, and whether it is sent at all. Both depend on the answers, so a
slow server receives fewer turns a second from the users that it has; it does not delay the arrival of others.
"""

from __future__ import annotations

import math
from random import Random
from typing import Annotated

from msgspec import Meta, Struct

from latdoctor.load.distributions import ConstantValue, Distribution

MOST_TURNS = 10_000  # of one session


class Users(Struct, frozen=True, forbid_unknown_fields=True):
    """What the users of a phase do. Times in seconds.

    `turns`: requests of a session, rounded to whole numbers, at least 1. `think_s`: from the end of an answer to the
    wish to send the next turn. `patience_s`: drawn once for each user, who hangs up and leaves when a turn, with its
    retries, takes longer; None: no limit. `leave_after_failure`: probability to leave after a turn that failed finally.
    """

    turns: Distribution = ConstantValue(1)
    think_s: Distribution = ConstantValue(0)
    patience_s: Distribution | None = None
    leave_after_failure: Annotated[float, Meta(ge=0, le=1)] = 0.0

    def draw_turns(self, rng: Random) -> int:
        return min(max(1, round(self.turns.draw(rng))), MOST_TURNS)

    def draw_patience(self, rng: Random) -> float:
        return math.inf if self.patience_s is None else self.patience_s.draw(rng)
