"""Takes a candidate through the gate: evaluates it beside the stable model, decides, and writes the report."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.schema_registry import codec_for
from lightstream.schemas.errors import PublishError, SettingsError
from lightstream.schemas.policy_names import base_of_model, version_of_model
from lightstream.schemas.records import GateCheck, GateOutcome, GateReport, GateSet
from lightstream.schemas.topics import RELEASES
from lightstream.store_views.client import ViewClient

from .evaluating import DIGEST_CHARACTERS, Evaluation
from .gate import Bar, Decision, checked_gain_on, decide

if TYPE_CHECKING:
    from lightstream.producers import LitAgent
    from lightstream.runtime.settings import Settings

FIXED = "fixed"
"""The set of a file or an environment."""

TRAFFIC = "traffic"
"""The set that is a sample of the traffic. That a run was trained on its inputs is no leak."""

_REPORT = "SELECT * FROM gate_reports WHERE report_id = $report"


@dataclass(frozen=True, slots=True)
class GatedSet:
    """Tasks that both models answer, and the agent that does so and gives the rewards.

    Attributes:
        tasks, metadata: as in :class:`Evaluation`.
        identity: tells the agent and its verifier from others, such as a file's name and digest. A report is of one
            identity. By default the agent's class.
    """

    agent: LitAgent[Any]
    tasks: Sequence[Any]
    metadata: Sequence[Mapping[str, Any]] = ()
    identity: str = ""


Answer = Callable[["Evaluation", "LitAgent[Any]"], None]
"""Runs the rollouts of an evaluation; blocks."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of a release. Calling it blocks until the report is in the log.

    A candidate is judged once by the same sets and bar: a report that is in the log is returned as it is, so that
    asking often does not let a bad one pass. After an ``undecided`` one the rollouts are made again. A gate that was
    killed goes on where it was.

    Attributes:
        sets: name -> tasks; each must pass. The first shows the gain, unless the bar names another.
        samples: answers for each task and model.
        sampling: parameters of each call.
        by: who asks, for the report.
        answer: runs an evaluation; ``None``: without a word.
    """

    settings: Settings
    sets: Mapping[str, GatedSet]
    bar: Bar = field(default_factory=Bar)
    samples: int = 1
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    concurrency: int = 16
    by: str = ""
    answer: Answer | None = None

    def __call__(
        self, release: str, stable: str, candidate: str, *, stop: Callable[[], bool] = lambda: False
    ) -> GateReport:
        """Judge a candidate.

        Args:
            stop: asked while it waits, unless ``answer`` runs the rollouts.

        Raises:
            StoppedError: ``stop`` said so. Nothing is decided; asking again goes on.
            SettingsError: stable and candidate are the same model, or one is a release; a set has no tasks, or there
                is none that must show the gain. Nothing was run.
            PublishError: Kafka has not acknowledged the report.
            ServiceUnavailableError: Kafka, the proxy, the worker or the view does not answer. Nothing is decided;
                asking again goes on.
        """
        if stable == candidate:
            raise SettingsError(
                f"stable and candidate of {release!r} are both {stable!r}.", next_step="Name another candidate."
            )
        gain_on = checked_gain_on(self.bar, self.sets)
        for model in sorted({stable, candidate} & ReleaseLog(self.settings).states().keys()):
            raise SettingsError(
                f"{model!r} is a release, whose candidate would answer a share of the calls.",
                next_step="Name the model that serves it: `lightstream release list`.",
            )
        view = ViewClient(self.settings)
        trial = 0
        while (found := self._report(view, self._id(release, stable, candidate, gain_on, trial))) is not None:
            if found.outcome is not GateOutcome.UNDECIDED:
                return found
            trial += 1
        report_id = self._id(release, stable, candidate, gain_on, trial)
        key = report_id.rpartition("-")[2]
        evaluations = {
            name: Evaluation(
                f"gate-{release}-{name}-{key}",
                one.tasks,
                [stable, candidate],
                self.samples,
                self.sampling,
                one.metadata,
            )
            for name, one in self.sets.items()
        }
        for name, evaluation in evaluations.items():
            self._run(evaluation, self.sets[name].agent, stop)
        found_of = {name: evaluation.results(self.settings, stop) for name, evaluation in evaluations.items()}
        decision = decide(
            {name: (found[stable], found[candidate]) for name, found in found_of.items()},
            self.bar,
            versions=(version_of_model(stable), version_of_model(candidate)),
        )
        sets = [self._set(view, name, evaluation, candidate) for name, evaluation in evaluations.items()]
        report = GateReport(
            report_id=report_id,
            release=release,
            stable=stable,
            candidate=candidate,
            outcome=decision.outcome,
            error_rate=self.bar.error_rate,
            checks=decision.checks,
            sets=sets,
            notes=_notes(decision, sets),
            by=self.by,
            created_unix_nano=time.time_ns(),
        )
        publisher = KafkaPublisher(self.settings, codec=codec_for(self.settings), linger_ms=0.0)
        try:
            publisher.publish(RELEASES, release, report).result(self.settings.publish_timeout_s)
        except TimeoutError as error:
            raise PublishError(
                "Kafka has not acknowledged the gate's report.", next_step="Ask again: nothing is run twice."
            ) from error
        finally:
            publisher.close()
        return report

    def _id(self, release: str, stable: str, candidate: str, gain_on: str, trial: int) -> str:
        """The report's id. It follows from all that decides it."""
        asked = {
            "models": [stable, candidate],
            "sets": {
                name: [list(one.tasks), list(one.metadata), one.identity or _class_of(one.agent)]
                for name, one in self.sets.items()
            },
            "bar": asdict(self.bar) | {"gain_on": gain_on},
            "samples": [self.samples, dict(self.sampling)],
            "trial": trial,
        }
        text = json.dumps(asked, sort_keys=True)
        return f"{release}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:DIGEST_CHARACTERS]}"

    def _run(self, evaluation: Evaluation, agent: LitAgent[Any], stop: Callable[[], bool]) -> None:
        if self.answer is not None:
            self.answer(evaluation, agent)
        else:
            asyncio.run(evaluation.run(self.settings, agent, concurrency=self.concurrency, stop=stop))

    def _report(self, view: ViewClient, report_id: str) -> GateReport | None:
        rows = view.query(_REPORT, "now", params={"report": report_id}).dicts()
        if not rows:
            return None
        fields = {name: rows[0][name] for name in GateReport.model_fields}
        return GateReport.model_validate(
            fields
            | {
                "checks": [GateCheck.model_validate(check) for check in fields["checks"]],
                "sets": [GateSet.model_validate(one) for one in fields["sets"]],
            }
        )

    def _set(self, view: ViewClient, name: str, evaluation: Evaluation, candidate: str) -> GateSet:
        run = base_of_model(candidate).partition("/")[0]
        params = {"evaluation": evaluation.run_id, "run": run}
        trained = view.query(":trained-inputs", "now", params=params).dicts()[0]["tasks"]
        return GateSet(
            name=name,
            run_id=evaluation.run_id,
            digest=evaluation.digest,
            tasks=len(evaluation.tasks),
            trained=trained,
        )


def _class_of(agent: LitAgent[Any]) -> str:
    return f"{type(agent).__module__}.{type(agent).__qualname__}"


def _notes(decision: Decision, sets: Sequence[GateSet]) -> list[str]:
    leaks = [
        f"{one.name}: the candidate's run was trained on {one.trained:,} of its {one.tasks:,} tasks, so its gain there "
        "may be memory"
        for one in sets
        if one.trained and one.name != TRAFFIC
    ]
    return [*decision.notes, *leaks]


def traffic_tasks(
    settings: Settings,
    *,
    agent: str | None = None,
    count: int = 100,
    since_unix_nano: int = 0,
    consent: tuple[str, str] | None = None,
) -> list[Any]:
    """A sample of the traffic's inputs, each once, by the order of a hash.

    Args:
        agent: only of rollouts with a call of this agent.
        since_unix_nano: only of rollouts that were begun then or later.
        consent: name and text that the metadata of the rollouts must have; ``None``: any will do.

    Raises:
        SettingsError: there is no traffic with an input.
        ServiceUnavailableError: the view does not answer.
    """
    key, value = consent or (None, None)
    params = {"agent": agent, "since_unix_nano": since_unix_nano, "limit": count}
    params |= {"consent_key": key, "consent_value": value}
    rows = ViewClient(settings).query(":traffic-tasks", "now", params=params).dicts()
    if not rows:
        raise SettingsError(
            "there is no traffic with an input to sample.",
            next_step="Traffic is rollouts without a run, begun by start_rollout(input=…). Do they have the consent?",
        )
    return [json.loads(row["input_json"]) for row in rows]
