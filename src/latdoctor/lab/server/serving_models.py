"""The main model and its light standby; which of them computes the next batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self

from latdoctor.lab.server.config import ModelSettings
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.worker import BatchResult


class BatchAnswers(Protocol):
    """A model's predictions for a batch, in its order."""

    @property
    def intents(self) -> Sequence[int]: ...
    @property
    def scores(self) -> Sequence[float]: ...
    @property
    def padded_tokens(self) -> int: ...


class Model(Protocol):
    """A version in memory. `forward` runs on the worker; `apply`, `rebuild` and `standby` take seconds, elsewhere."""

    @property
    def settings(self) -> ModelSettings: ...

    @property
    def precision(self) -> str:
        """What it is computed in."""

    @property
    def checksum(self) -> str:
        """Of its weights."""

    def forward(self, batch: Sequence[ModelInput]) -> BatchAnswers: ...

    def apply(self, settings: ModelSettings) -> None: ...

    def rebuild(self) -> None:
        """Makes the network of its settings anew, beside the one in use."""

    def standby(self) -> Self: ...

    def warm_up(self) -> None: ...


class ServingModels:
    """Chooses between the two for each batch. The choice is shared state, so it is made under the shared lock."""

    def __init__(self, main: Model, wants_standby: Callable[[], bool], shared: AbstractContextManager[None]) -> None:
        self.main = main
        self._wants_standby = wants_standby
        self._shared = shared
        self._light: Model | None = None

    def prepare(self, settings: ModelSettings, *, standby: bool) -> None:
        """Prepares the models for `settings`. Takes seconds; call it off the worker and the event loop.

        Raises UsageError for what this machine cannot do; then nothing has changed.
        """
        renewed = settings != self.main.settings
        self.main.apply(settings)
        if not standby:
            self._light = None
        elif renewed or self._light is None:
            self._light = self.main.standby()

    def rebuild(self) -> str:
        """Both made anew from the settings they have; the checksum of the main one. As long as `prepare`, and there."""
        self.main.rebuild()
        if self._light is not None:
            self._light = self.main.standby()
        return self.main.checksum

    def warm_up(self) -> None:
        """Every kind of batch once; on the worker's thread."""
        self.main.warm_up()
        if self._light is not None:
            self._light.warm_up()

    def compute(self, inputs: Sequence[ModelInput]) -> BatchResult:
        with self._shared:
            use_standby = self._wants_standby()
        light = self._light if use_standby else None
        model = light or self.main
        version = model.settings.version
        answers = model.forward(inputs)
        return BatchResult(answers.intents, answers.scores, version, answers.padded_tokens, standby=light is not None)
