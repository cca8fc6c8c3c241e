"""A synthetic corpus of customers' texts with their right intents, for models that are trained on it.

A text has one request among words that say nothing, and often a second topic that is only mentioned ("I do not want to
cancel", "my invoice is fine"), so that the words alone do not give the intent. Every phrase of an intent is in the
training texts; their combinations in the test texts are new. Most short texts have the request alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import Struct

# By the index of the server's intents.
PHRASES: Sequence[tuple[str, ...]] = (
    ("where is my order", "track my parcel", "status of my order", "has my parcel been sent"),
    ("cancel my order", "stop the order", "I do not need it any more", "take my order back"),
    ("change my address", "I have moved", "send it to another street", "new delivery address"),
    ("my parcel is late", "it should have come yesterday", "still nothing arrived", "delivery takes too long"),
    ("return this item", "send it back", "I want to give it back", "return label please"),
    ("where is my refund", "money back when", "refund has not arrived", "status of my refund"),
    ("exchange it for another size", "swap the colour", "wrong size other one please", "exchange my item"),
    ("I need an invoice", "send the bill", "invoice for my order", "copy of the receipt"),
    ("payment failed", "card was declined", "paid twice", "cannot pay"),
    ("discount code", "voucher does not work", "is there a promotion", "sale this week"),
    ("how much is it", "price of this", "what does it cost", "is it cheaper elsewhere"),
    ("is it in stock", "when is it available again", "do you have it", "sold out"),
    ("account locked", "cannot log in", "forgot my password", "reset my login"),
    ("it broke after a month", "warranty claim", "is this covered", "repair it please"),
    ("this is unacceptable", "I want to complain", "bad service", "very angry about this"),
    ("talk to a person", "call me", "human agent please", "speak to someone"),
)
FILLER = """
hello please thanks hi well so the a of my I am we just also really today maybe yes no ok then there here it this that
and but with for about in on at since monday week again still very now kind regards team support chat
"""
_FILLER = FILLER.split()
_MENTIONS = ("not because {}", "I do not mean {}", "{} is fine", "never mind {}", "no longer {}", "{} was solved")


class LabelledText(Struct, frozen=True):
    text: str
    intent: int


def texts(count: int, seed: int, *, short_share: float = 0.7) -> Sequence[LabelledText]:
    """`count` texts, the same for the same seed; the others than the short ones have 20 to 60 words."""
    source = random.Random(seed)
    return [_text(source, short=source.random() < short_share) for _ in range(count)]


def _text(source: random.Random, *, short: bool) -> LabelledText:
    intent = source.randrange(len(PHRASES))
    request = source.choice(PHRASES[intent])
    if short:
        words = [*_filler(source, 0, 2), request, *_filler(source, 0, 3)]
        if source.random() < 0.25:  # a second topic, mentioned
            words.insert(0 if source.random() < 0.5 else len(words), _mention(source, intent))
        return LabelledText(" ".join(words), intent)
    parts = [request, *(_mention(source, intent) for _ in range(source.randrange(1, 4)))]
    source.shuffle(parts)
    words = _filler(source, 3, 8)
    for part in parts:
        words += [part, *_filler(source, 3, 9)]
    return LabelledText(" ".join(words), intent)


def _mention(source: random.Random, intent: int) -> str:
    other = source.choice([number for number in range(len(PHRASES)) if number != intent])
    return source.choice(_MENTIONS).format(source.choice(PHRASES[other]))


def _filler(source: random.Random, least: int, most: int) -> list[str]:
    return [source.choice(_FILLER) for _ in range(source.randint(least, most))]
