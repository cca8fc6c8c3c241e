"""What a diagnosis says of the parameters of a playbook."""

from __future__ import annotations

import pytest

from latdoctor.errors import UsageError
from latdoctor.remediation.diagnosed_parameters import diagnosed_names, with_diagnosed
from latdoctor.remediation.playbook_library import shipped

DRAIN, MEMORY, OUT = (
    shipped().find(name) for name in ("infra.kubernetes.node-drain", "infra.container.memory-raise", "app.scale.out")
)


def test_a_node_that_the_diagnosis_names_is_the_one_to_drain() -> None:
    assert with_diagnosed(DRAIN, {}, ["pod/prod/chat-1@lab", "node/gpu-7@lab"]) == {"node": "gpu-7"}


def test_the_container_of_several_pods_is_one() -> None:
    subjects = ["container/prod/chat-1/server@lab", "container/prod/chat-2/server@lab"]
    assert with_diagnosed(MEMORY, {"factor": "2"}, subjects) == {"factor": "2", "container": "server"}


def test_what_is_set_by_hand_stays() -> None:
    assert with_diagnosed(DRAIN, {"node": "gpu-1"}, ["node/gpu-7@lab", "node/gpu-8@lab"]) == {"node": "gpu-1"}


def test_of_several_nodes_one_has_to_be_chosen() -> None:
    with pytest.raises(UsageError, match="names 2 nodes: gpu-7, gpu-8") as raised:
        with_diagnosed(DRAIN, {}, ["node/gpu-7@lab", "node/gpu-8@lab"])
    assert raised.value.next_step == "choose one: --set node=gpu-7"


@pytest.mark.parametrize("subjects", [["deployment/prod/chat@lab"], ["node/local"], []])
def test_what_names_no_node_answers_nothing(subjects: list[str]) -> None:
    assert with_diagnosed(DRAIN, {}, subjects) == {}


def test_a_parameter_with_a_default_is_not_answered() -> None:
    assert diagnosed_names(OUT, ["node/gpu-7@lab"]) == {}
