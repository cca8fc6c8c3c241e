"""Documents as they are pasted: behind the command that printed them, in a fence, cut at the end."""

from __future__ import annotations

import pytest

from latdoctor.collectors.documents.reader import parse
from latdoctor.collectors.documents.splitting import unwrapped
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

ANSWER = (
    '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"vllm:kv_cache_usage_perc",'
    '"model_name":"m","engine":"0"},"values":[[1765440000,"0.42"],[1765440060,"0.97"]]}]}}'
)


def evidence_of(text: str) -> Evidence:
    return parse([Artifact("documents/x", "documents", "x", "x", 1.77e9, text.encode())])


WRAPPINGS = [("", ""), ("$ curl prom:9090/api/v1/query\n", "\n"), ("```json\n", "\n```\n"), ("\nuser@host:~$ x\n", "")]


@pytest.mark.parametrize(("before", "behind"), WRAPPINGS)
def test_a_document_is_read_behind_its_command_and_in_a_fence(before: str, behind: str) -> None:
    assert unwrapped(before + ANSWER + behind).strip() == ANSWER
    assert evidence_of(before + ANSWER + behind).readings == evidence_of(ANSWER).readings != ()
