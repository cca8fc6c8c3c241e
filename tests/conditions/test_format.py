"""A condition printed as text: nothing is left out, and groups are in brackets."""

from __future__ import annotations

import pytest

from latdoctor.conditions.ast import in_words
from tests.evidence.builders import condition


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("queue.depth  >  4", "queue.depth  >  4"),
        (
            "{any: [queue.depth < 10, queue.depth < 0.2 x before]}",
            "queue.depth < 10 or queue.depth < 0.2 x before",
        ),
        (
            "{prefer: {all: [error.ratio > 5%, error.ratio > 1.5 x before]}, otherwise: error.ratio > 5%}",
            "(error.ratio > 5% and error.ratio > 1.5 x before); where that is not known, error.ratio > 5%",
        ),
        (
            "{all: [{any: [queue.depth > 4, queue.depth > 5]}, {not: batch.size.mean < 2}]}",
            "(queue.depth > 4 or queue.depth > 5) and not batch.size.mean < 2",
        ),
        ("{all: [queue.depth > 4], given: trace.kernels >= 20}", "queue.depth > 4, unknown unless trace.kernels >= 20"),
    ],
)
def test_a_condition_as_it_was_written(text: str, words: str) -> None:
    assert in_words(condition(text)) == words
