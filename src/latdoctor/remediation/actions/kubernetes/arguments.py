"""An argument of a container, such as `--max-num-seqs=64` of a server: its Pods are replaced, and start with it."""

from __future__ import annotations

import re

from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes.field_action import Arguments, FieldsAction
from latdoctor.remediation.actions.kubernetes.fields import compact, to_raw
from latdoctor.remediation.actions.kubernetes.rollout import WORKLOAD_RIGHTS
from latdoctor.remediation.actions.kubernetes.scaling import locate_workload
from latdoctor.remediation.actions.kubernetes.workload import chosen_container, container_pointers
from latdoctor.remediation.change import State, Values

_ARGS = "args"
_OPTION = re.compile(r"--?[A-Za-z][\w.=-]{0,100}")
_VALUE = re.compile(r"[\w.,:/+-]{1,100}")


def _with_argument(arguments: Arguments, state: State) -> Values:
    """The arguments of the container with one of them set: replaced where it is there, else at the end.

    `--set=queue.max_requests` sets `--set=queue.max_requests=64`. An option may have its value in a word of its own.
    """
    option, value = arguments.get("argument", ""), arguments.get("value", "")
    if not _OPTION.fullmatch(option) or not _VALUE.fullmatch(value):
        raise UsageError(
            f"no argument of a server: {option!r} with the value {value!r}",
            next_step="write it such as --set argument=--max-num-seqs --set value=64",
        )
    container = chosen_container(arguments, state, _ARGS)
    present = state.values[f"{container}/{_ARGS}"]
    if present is None:
        raise UsageError(
            f"the container {container.rpartition('/')[2]} has no args; with one, those of its image would be dropped",
            next_step="give it all of its arguments where the workload is defined",
        )
    words = [str(one) for one in to_raw("", present)]
    return {f"{container}/{_ARGS}": compact(_replaced(words, option, value))}


def _replaced(words: list[str], option: str, value: str) -> list[str]:
    """The last one that sets the option counts for a server, so that is the one that is replaced."""
    for number in reversed(range(len(words))):
        if words[number].startswith(f"{option}="):
            return [*words[:number], f"{option}={value}", *words[number + 1 :]]
        if words[number] == option and number + 1 < len(words):
            return [*words[: number + 1], value, *words[number + 2 :]]
    return [*words, f"{option}={value}"]


SET_ARGUMENT = FieldsAction(
    name="kubernetes.argument.set",
    aspect="arguments",
    arguments={"container": "server", "argument": "--max-num-seqs", "value": "64"},
    optional=frozenset({"container"}),
    locate=locate_workload,
    select=lambda found: container_pointers(found, _ARGS),
    desired=_with_argument,
    rights=WORKLOAD_RIGHTS,
)
