"""What every peer's server does for a request, apart from its own serving: read the body, run a batch, word the answer.

The same model, tokeniser and frames as the reference server's, in the same configuration (one torch thread, `auto`
precision, pooled glibc). Runs in the peers' own environment; loads torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.intent_model import INTENTS, IntentModel
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.memory import build as build_pool
from latdoctor.lab.server.network import FRAME_WIDTH
from latdoctor.lab.server.tokenizer import audio_frames
from latdoctor.load.text_tokens import text_tokens

MOST_WASTE = 0.3  # of a group's computed tokens, with `grouped`: what the reference server allows a batch
MOST_TOKENS = 1024  # of a group with padding, for the same reason


class Question(Struct, frozen=True):
    """One request, read."""

    request_id: str
    input: ModelInput


class Answering:
    """The model behind a peer. `null` answers at once; `grouped` computes a batch in groups of similar length."""

    def __init__(self, *, null: bool, grouped: bool) -> None:
        config = ServerConfig()
        self._null = null
        self._grouped = grouped
        self._model = IntentModel(
            config.model, build_pool(config.memory), positions=config.queue.max_tokens_per_request
        )
        self._version = config.model.version
        audio_frames(1, FRAME_WIDTH)  # numpy loads its generators at the first use
        self._model.warm_up()

    @classmethod
    def from_environment(cls) -> Answering:
        return cls(null=os.environ.get("PEER_NULL") == "1", grouped=os.environ.get("PEER_GROUPED") == "1")

    @staticmethod
    def read(body: Mapping[str, Any]) -> Question:
        """Text into tokens, audio into frames."""
        text = body.get("text")
        read: ModelInput = audio_frames(body["audio_seconds"], FRAME_WIDTH) if text is None else text_tokens(text)
        return Question(body["request_id"], read)

    def answer(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        """The answers to a batch, in its order."""
        found: list[tuple[int, float]] = [(0, 0.0)] * len(questions)
        if not self._null:
            for places in self._groups(questions):
                answers = self._model.forward([questions[place].input for place in places])
                for place, intent, score in zip(places, answers.intents, answers.scores, strict=True):
                    found[place] = (intent, score)
        return [
            {
                "intent": INTENTS[intent],
                "score": round(score, 6),
                "model_version": self._version,
                "request_id": one.request_id,
            }
            for one, (intent, score) in zip(questions, found, strict=True)
        ]

    def _groups(self, questions: Sequence[Question]) -> list[list[int]]:
        """What is computed together: the whole batch, or runs of its order by length with little padding."""
        if not self._grouped:
            return [list(range(len(questions)))]
        groups: list[list[int]] = []
        tokens = 0
        for place in sorted(range(len(questions)), key=lambda place: len(questions[place].input)):
            length = len(questions[place].input)
            if groups:
                computed = (len(groups[-1]) + 1) * length
                if computed <= MOST_TOKENS and 1 - (tokens + length) / computed <= MOST_WASTE:
                    groups[-1].append(place)
                    tokens += length
                    continue
            groups.append([place])
            tokens = length
        return groups
