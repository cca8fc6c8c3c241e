"""The weight of each feature of a request, and what leaving out the lightest costs in answers and saves in time.

    python -m bench.feature_trimming [--texts 300] [--output json]

The reference model answers texts with all 24 features, then without each of them alone: a feature's weight is the share
of answers that change plus the mean change of their probability. Then the weightiest k are kept, beside k at random.
"Agreement" is the share of texts with the same answer as with all features; the network is not trained, so that this is
the cost of the change, not of a product. Time is that of the computing thread for batches of eight.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence

from msgspec import Struct

from bench.harness import arguments, markdown, print_result
from latdoctor.lab.server.config import FEATURE_NAMES, MemoryConfig, ModelSettings
from latdoctor.lab.server.features import feature_tokens
from latdoctor.lab.server.tokenizer import SEPARATOR
from latdoctor.load.text_tokens import VOCABULARY

BATCH = 8
KEPT = (24, 18, 12, 6, 0)
RANDOM_ORDERS = 5


class Kept(Struct, frozen=True):
    """`tokens` of a mean request; `cpu_ms` of a request; `cpu_saved` against all features."""

    features: int
    agreement: float
    agreement_at_random: float
    tokens: float
    cpu_ms: float
    cpu_saved: float


class Sample:
    """Texts as token ids, and the model's answers to them."""

    def __init__(self, count: int) -> None:
        from latdoctor.lab.server.intent_model import IntentModel
        from latdoctor.lab.server.memory import build

        source = random.Random(0)
        self.texts = [[source.randrange(4, VOCABULARY) for _ in range(source.randrange(8, 60))] for _ in range(count)]
        self.model = IntentModel(ModelSettings(precision="fp32"), build(MemoryConfig(backend="arena")))

    def answers(self, kept: Sequence[str]) -> tuple[list[int], list[float], float, float]:
        """Intents, probabilities, mean tokens, and seconds of the computing thread per text."""
        names = [name for name in FEATURE_NAMES if name in set(kept)]
        inputs = [
            [*feature_tokens(names, str(number)), *([SEPARATOR] if names else []), *text]
            for number, text in enumerate(self.texts)
        ]
        intents: list[int] = []
        scores: list[float] = []
        began = time.thread_time()
        for start in range(0, len(inputs), BATCH):
            found = self.model.forward(inputs[start : start + BATCH])
            intents += found.intents
            scores += found.scores
        seconds = time.thread_time() - began
        return intents, scores, sum(map(len, inputs)) / len(inputs), seconds / len(inputs)


def agreement(one: Sequence[int], other: Sequence[int]) -> float:
    return sum(first == second for first, second in zip(one, other, strict=True)) / len(one)


def weights(sample: Sample, intents: Sequence[int], scores: Sequence[float]) -> dict[str, float]:
    """Per feature, what leaving it out alone changes: the share of answers, plus the mean change of probability."""
    found = {}
    for name in FEATURE_NAMES:
        others = [other for other in FEATURE_NAMES if other != name]
        changed, moved, _, _ = sample.answers(others)
        drift = sum(abs(first - second) for first, second in zip(scores, moved, strict=True)) / len(scores)
        found[name] = 1 - agreement(intents, changed) + drift
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--texts", type=int, default=300, metavar="N")
    options = parser.parse_args(given)
    import torch

    torch.set_num_threads(1)
    sample = Sample(options.texts)
    sample.answers(FEATURE_NAMES)  # warm
    intents, scores, _, whole = sample.answers(FEATURE_NAMES)
    weight = weights(sample, intents, scores)
    order = sorted(FEATURE_NAMES, key=lambda name: -weight[name])
    rows = []
    for kept in KEPT:
        kept_intents, _, tokens, seconds = sample.answers(order[:kept])
        at_random = []
        for seed in range(RANDOM_ORDERS):
            shuffled = random.Random(seed).sample(FEATURE_NAMES, kept)
            at_random.append(agreement(intents, sample.answers(shuffled)[0]))
        rows.append(
            Kept(
                kept,
                round(agreement(intents, kept_intents), 3),
                round(sum(at_random) / len(at_random), 3),
                round(tokens, 1),
                round(seconds * 1e3, 2),
                round(1 - seconds / whole, 3),
            )
        )
    columns = Kept.__struct_fields__
    table = markdown(columns, [[getattr(one, name) for name in columns] for one in rows])
    found = {"order": order, "weights": {name: round(weight[name], 4) for name in order}, "kept": rows}
    print_result(found, options.output, "\n".join([*table, "", f"features.order={','.join(order)}"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
