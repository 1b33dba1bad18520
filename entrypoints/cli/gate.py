"""``lightstream gate``: takes a candidate through the gate of a release."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

from .agent_commands import AgentName, Command, Env, EnvOption, RewardOf, Verifier
from .formats import Format
from .learn import consent_of
from .load import needs
from .user import by_command_line

if TYPE_CHECKING:
    from lightstream.schemas.records import GateReport
    from lightstream.trainers.evaluation import Guard

NOT_PASSED = 3
"""Exit status where the candidate did not pass."""

app = typer.Typer()
console = Console(highlight=False)


@app.command()
def gate(
    release: Annotated[str, typer.Argument(help="The release.", show_default=False)],
    agent: AgentName = None,
    candidate: Annotated[str | None, typer.Option(help="The model to judge, such as RUN@VERSION.")] = None,
    stable: Annotated[str | None, typer.Option(help="Model to compare with; by default the stable one.")] = None,
    tasks: Annotated[Path | None, typer.Option(help="File of tasks: JSON lines, or a JSON list.")] = None,
    env: Env = None,
    env_option: EnvOption = None,
    command: Command = None,
    verifier: Verifier = None,
    reward: RewardOf = "program",
    traffic: Annotated[int, typer.Option(min=0, help="Inputs of the traffic to add, each once.")] = 0,
    traffic_agent: Annotated[str | None, typer.Option(help="Take only traffic with a call of this agent.")] = None,
    traffic_consent: Annotated[
        str | None, typer.Option(help="Take only traffic whose metadata have KEY=VALUE, such as consent=true.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers for each task and model.")] = 1,
    sampling: Annotated[str, typer.Option(help="Sampling parameters of the calls, as a JSON object.")] = "{}",
    margin: Annotated[float, typer.Option(help="Loss of mean reward that is acceptable on a set.")] = 0.02,
    gain: Annotated[float, typer.Option(help="Mean reward must be higher by more than this.")] = 0.0,
    gain_on: Annotated[str, typer.Option(help="Set that shows the gain: `fixed` (default) or `traffic`.")] = "",
    error_rate: Annotated[float, typer.Option(help="Probability at most with which a check passes wrongly.")] = 0.01,
    guard: Annotated[
        list[str] | None,
        typer.Option(help="In place of the usual guards: FIGURE=RATIO or FIGURE=RATIO+SLACK; may be repeated."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once.")] = 16,
    output: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.TABLE,
) -> None:
    """Judge whether a candidate may serve a release: not worse on any set, better on one, and within the guards.

    The report is kept in the log. Exit status 3: it did not pass. The same command goes on after an interruption.
    """
    from .evaluate import answer, evaluated_of, sampling_of

    settings = Settings.load()
    log_to_stderr(settings, logging.WARNING)
    if candidate is None:
        raise SettingsError("no candidate is named.", next_step="Name one with --candidate RUN@VERSION.")
    if tasks is None and env is None and not traffic:
        raise SettingsError("the gate has no tasks.", next_step="Name --tasks FILE, --env NAME or --traffic COUNT.")
    with needs("view"):
        from lightstream.trainers.evaluation import Bar, Gate, GatedSet, traffic_tasks
        from lightstream.trainers.evaluation.gate import GUARDS
        from lightstream.trainers.evaluation.gating import FIXED, TRAFFIC
    guards = GUARDS if guard is None else [_guard(text) for text in guard]
    bar = Bar(margin=margin, gain=gain, gain_on=gain_on, error_rate=error_rate, guards=guards)
    chosen = evaluated_of(settings, agent, command, verifier, reward, tasks, env, env_option or [], tasks_optional=True)
    sets: dict[str, GatedSet] = {}
    if chosen.tasks:
        sets[FIXED] = GatedSet(chosen.agent, chosen.tasks, chosen.metadata, chosen.identity)
    if traffic:
        required_consent = None if traffic_consent is None else consent_of(traffic_consent)
        sample = traffic_tasks(settings, agent=traffic_agent, count=traffic, consent=required_consent)
        sets[TRAFFIC] = GatedSet(chosen.agent, sample, identity=chosen.identity)
    candidate_gate = Gate(
        settings,
        sets,
        bar,
        samples,
        sampling_of(sampling),
        by=by_command_line(),
        answer=lambda evaluation, of: answer(settings, of, evaluation, concurrency),
    )
    report = candidate_gate(release, stable or _stable(settings, release), candidate)
    if output is Format.JSON:
        print(report.model_dump_json(indent=2))
    else:
        _print(report)
    if report.outcome != "passed":
        raise typer.Exit(NOT_PASSED)


def _stable(settings: Settings, release: str) -> str:
    from lightstream.store_views.client import ViewClient

    sql = "SELECT stable FROM releases WHERE release = $release"
    rows = ViewClient(settings).query(sql, "now", params={"release": release}).rows
    if not rows:
        raise SettingsError(f"there is no release {release!r}.", next_step="Name the model to compare with: --stable.")
    return str(rows[0][0])


def _guard(text: str) -> Guard:
    """The guard of an option.

    Raises:
        SettingsError: it is none.
    """
    from lightstream.trainers.evaluation import Guard

    figure, _, limit = text.partition("=")
    ratio, _, slack = limit.partition("+")
    try:
        return Guard(figure, float(ratio), float(slack or 0))
    except ValueError as error:
        raise SettingsError(
            f"--guard is {text!r}, and no limit of a figure.", next_step="For example --guard latency=1.5+0.5."
        ) from error


def _print(report: GateReport) -> None:
    table = Table(caption=f"Report {report.report_id}.", caption_justify="left")
    for name in ("set", "check", "tasks", report.stable, report.candidate, "limit", "p", ""):
        table.add_column(escape(name), justify="left" if name in ("set", "check", "") else "right", overflow="fold")
    for check in report.checks:
        condition = {"not_worse": "not worse", "better": "better"}.get(check.kind, "guard")
        table.add_row(
            check.task_set,
            f"{check.figure}: {condition}",
            f"{check.tasks:,}",
            f"{check.stable_mean:.4g}",
            f"{check.candidate_mean:.4g}",
            f"{check.limit:+.3g}" if check.figure == "reward" else f"{check.limit:.4g}",
            f"{check.probability:.3g}",
            "passed" if check.passed else "failed",
        )
    if report.checks:
        console.print(table)
    for note in report.notes:
        console.print(note, markup=False)
    console.print(f"{report.candidate} for {report.release}: {report.outcome}", markup=False)
