"""Each kind of credential and prompt is gone, and each rule of the detectors finds what it describes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from latdoctor.evidence.redaction.detectors import DETECTORS, Rule
from latdoctor.evidence.redaction.names import entropy
from latdoctor.evidence.redaction.redactor import Redactor, without_secrets
from tests.evidence.redaction.by_regex import matching
from tests.evidence.redaction.samples import Sample, samples

WAYS: dict[str, Callable[[str], str]] = {
    "bundle": lambda text: Redactor(b"key").content(text.encode()).decode(),
    "shown": without_secrets,
}
SAMPLES = samples()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sample", SAMPLES, ids=[one.id for one in SAMPLES])
def test_a_kind_is_gone(sample: Sample, way: str) -> None:
    made = WAYS[way](sample.text)
    assert [part for part in sample.private if part in made] == []
    assert WAYS[way](made) == made, "redacting it again changes nothing"


@pytest.mark.parametrize("rule", DETECTORS.rules, ids=[rule.id for rule in DETECTORS.rules])
def test_a_rule_finds_what_it_describes(rule: Rule) -> None:
    text, secret = _sample(rule)
    for way in WAYS.values():
        made = way(f"using {text} now")
        assert secret not in made
        assert way(made) == made


def _sample(rule: Rule) -> tuple[str, str]:
    """A text that the rule matches, and the secret in it."""
    chance = random.Random(rule.id)
    for _ in range(200):
        text = matching(rule.regex, chance)
        found = re.search(rule.regex, text)
        if found is None or not any(word.decode() in text.lower() for word in rule.keywords):
            continue
        groups = (rule.group, *range(1, found.re.groups + 1))
        secret = next((found[group] for group in groups if found[group]), found[0])
        if entropy(secret) >= rule.least:
            return text, secret
    raise AssertionError("no text was found")
