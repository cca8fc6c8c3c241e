"""The process that goes on with a pending proof: how it is started, and what it does (`runs prove`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from latdoctor.case_from_bundle import kept, observer
from latdoctor.cli.collect_and_diagnose import rule_set
from latdoctor.cli.interrupt import stoppable
from latdoctor.cli.notifier import notifying
from latdoctor.cli.playbooks import library
from latdoctor.cli.remediate_targets import access_again, settings_for
from latdoctor.cli.resolve_request import ResolvedRequest
from latdoctor.cluster_api import Login
from latdoctor.collectors.base import CollectRequest, KubernetesWorkloads
from latdoctor.errors import LatdoctorError, OperationError, UsageError
from latdoctor.evidence.baseline import load as load_baseline
from latdoctor.evidence.bundle import Context
from latdoctor.journal import state_dir
from latdoctor.journal.locks import take_over
from latdoctor.journal.store import Journal
from latdoctor.remediation import executor, run_history
from latdoctor.remediation.observation import Observation, Observe
from latdoctor.remediation.pending_proof import ProofStopped, Sources
from latdoctor.remediation.rollback import abandon_proof
from latdoctor.remediation.run_context import HandOver, RunContext
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Result

_LOG = "proof.log"  # in the run's folder: what would have been printed


def hand_over(place: Path) -> HandOver:
    """Starts a process that outlives this one and its terminal; it inherits the lock, and secrets by its environment.

    Returns its PID. Raises OperationError.
    """

    def start(run: str, lock: int) -> int:
        folder = place / state_dir.RUNS / run
        command = [sys.executable, "-m", "latdoctor", "runs", "prove", run, "--lock", str(lock)]
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.set_inheritable(lock, True)
            # No child that is waited for: it goes on when this process has ended.
            files = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(folder / _LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ]
            return os.posix_spawn(sys.executable, command, os.environ, file_actions=files, setsid=True)
        except OSError as error:
            raise OperationError(f"the proof cannot go on in a process of its own: {error.strerror}") from error

    return start


def unobserved(seconds: float) -> Observation:
    """For a context that only rolls back."""
    raise UsageError("a rollback observes nothing")


def prove(run_id: str, lock: int) -> int:
    """Go on with the pending proof of a run whose lock this process has inherited. Returns the exit code."""
    place = state_dir.private_folder()
    journal = Journal.opened(place / state_dir.JOURNAL)
    run = next(iter(run_history.runs(journal.entries(run_id))), None)
    if run is None or run.pending is None or not run.open:
        raise UsageError(f"the proof of {run_id!r} is not pending", next_step="latdoctor runs list")
    try:
        take_over(lock, run_id)
    except OSError as error:
        raise UsageError("not the lock of a run", where="--lock", next_step="latdoctor recover") from error
    with ExitStack() as stack:
        poke, stop = stack.enter_context(notifying()), stack.enter_context(stoppable())
        try:
            access = access_again(run.plan.target, settings_for(run.plan.target))
        except LatdoctorError as error:  # without access to the target nothing can be undone either
            journal.append(run_id, "proof.stopped", ProofStopped(str(error)))
            raise
        context = RunContext(journal, place, access, unobserved, kept, on_entry=lambda _: poke(), stop_reason=stop)
        try:
            return resume(run, context).outcome.exit_code
        except LatdoctorError as error:
            return abandon_proof(run, error, context).outcome.exit_code


def resume(run: RunState, context: RunContext) -> Result:
    """Go on with the proof of `run` in this process; its target is locked."""
    sources = run.pending.sources if run.pending else Sources()
    books = library(tuple(map(Path, sources.playbooks)))
    return executor.resume(run, books, replace(context, observe=observe_again(sources)))


def observe_again(sources: Sources) -> Observe:
    """Observes what a run observed, with the same baseline. Raises UsageError, DefinitionError, BundleError."""
    login = Login(Path(sources.kubeconfig) if sources.kubeconfig else None, sources.kube_context)
    request = CollectRequest(
        servers=sources.servers,
        nvml=sources.nvml,
        host=sources.host,
        pid=sources.pid,
        kubernetes=KubernetesWorkloads(sources.kube, login) if sources.kube else None,
    )
    context = Context(sources.target, sources.slo_p99, sources.slo_error_ratio, sources.gpu)
    baseline = load_baseline(Path(sources.baseline)) if sources.baseline else None
    return observer(request, context, baseline, rule_set(tuple(map(Path, sources.rules))))


def sources_of(request: ResolvedRequest, rules: Sequence[Path], playbooks: Sequence[Path]) -> Sources:
    """What a run observes, to be journaled."""
    asked, context = request.request, request.context
    workloads = asked.kubernetes
    login = workloads.login if workloads else Login()
    return Sources(
        servers=asked.servers,
        nvml=asked.nvml,
        host=asked.host,
        pid=asked.pid,
        kube=workloads.names if workloads else (),
        kube_context=login.context,
        kubeconfig=str(login.kubeconfig.resolve()) if login.kubeconfig else "",
        target=context.target,
        slo_p99=context.slo_p99,
        slo_error_ratio=context.slo_error_ratio,
        gpu=context.gpu,
        baseline=str(request.baseline_file.resolve()) if request.baseline_file else "",
        rules=tuple(str(path.resolve()) for path in rules),
        playbooks=tuple(str(path.resolve()) for path in playbooks),
    )
