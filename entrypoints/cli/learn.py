"""``lightstream learn`` and ``lightstream lineage``: learn from traffic, and show how a version was made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError, SettingsError

from .agents import code_of, load_agent
from .formats import Format
from .load import needs
from .rows import console_for_rows, print_rows
from .train import read_tasks
from .view_query import ask_view

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

if TYPE_CHECKING:
    from lightstream.schemas.records import GateReport
    from lightstream.trainers.algorithms.continuous.releasing import Gate

console = Console(highlight=False)


def seconds_of(name: str, text: str) -> float:
    """Seconds of ``90s``, ``15m``, ``1h``, ``2d``; of a number alone as well.

    Raises:
        SettingsError: it is none of these.
    """
    unit = _UNITS.get(text[-1:], 0)
    try:
        return float(text[:-1]) * unit if unit else float(text)
    except ValueError as error:
        raise SettingsError(f"{name} is {text!r}.", next_step="Give 90s, 15m, 1h or 2d.") from error


def consent_of(text: str) -> tuple[str, str]:
    """Name and text of ``KEY=VALUE``; of ``KEY`` alone the text is ``true``.

    Raises:
        SettingsError: the name is empty, or has a quote, which no query may have.
    """
    key, _, value = text.partition("=")
    if not key or '"' in key:
        raise SettingsError(f"{key!r} is no name of metadata.", next_step="Give KEY=VALUE, such as consent=true.")
    return key, value or "true"


def learn(
    run_id: Annotated[str, typer.Option("--run", help="The run to train.", show_default=False)],
    model: Annotated[str, typer.Option(help="Folder or name of the initial model.", show_default=False)],
    agent: Annotated[
        str | None, typer.Option(help="Only rollouts with a call of this agent.", show_default="all")
    ] = None,
    window: Annotated[str | None, typer.Option(help="Length of a window in event time, such as 1h.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="In its place: trajectories of a window.")] = None,
    lateness: Annotated[str, typer.Option(help="Event time that late rewards are waited for, such as 30m.")] = "0s",
    learner: Annotated[str, typer.Option(help="reinforce, or sft on the best answers.")] = "reinforce",
    leave_out: Annotated[
        list[Path] | None, typer.Option(help="SQL file of rollouts to leave out, with a reason; may be repeated.")
    ] = None,
    take: Annotated[
        Path | None, typer.Option(help="SQL file of the rollouts to take; all others are left out.")
    ] = None,
    consent: Annotated[
        str | None, typer.Option(help="Take rollouts alone whose metadata have KEY=VALUE, such as consent=true.")
    ] = None,
    min_reward: Annotated[float | None, typer.Option(help="Leave out lower rewards.")] = None,
    max_age: Annotated[
        str | None, typer.Option(help="Leave out rollouts that ended longer before the window's end.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Take this share of the rollouts, by a hash of their ids.")
    ] = None,
    one_per_input: Annotated[bool, typer.Option("--one-per-input", help="Take one rollout of each input.")] = False,
    min_interval: Annotated[str, typer.Option(help="Least event time between two versions, such as 1d.")] = "0s",
    budget: Annotated[int | None, typer.Option(min=1, help="End once so many tokens were trained on.")] = None,
    windows: Annotated[int | None, typer.Option(min=1, help="End once the run has so many windows.")] = None,
    traffic: Annotated[str, typer.Option(help="Run that the rollouts name; by default they name none.")] = "",
    release: Annotated[str | None, typer.Option(help="Release that versions are offered to as candidates.")] = None,
    candidate_share: Annotated[float, typer.Option(min=0, max=1, help="Share that a candidate is offered.")] = 0.1,
    gate_agent: Annotated[
        str | None, typer.Option(help="Agent that the gate runs, FILE.py:agent; it gives the rewards.")
    ] = None,
    gate_tasks: Annotated[Path | None, typer.Option(help="File of tasks for the gate.")] = None,
    gate_traffic: Annotated[int, typer.Option(min=0, help="Inputs of the traffic for the gate.")] = 0,
    no_gate: Annotated[bool, typer.Option("--no-gate", help="Offer versions that nobody judged.")] = False,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of Policy, such as learning_rate=1e-5; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show each window's lesson; train nothing.")] = False,
) -> None:
    """Learn from traffic that nobody enqueued, window by window (docs/production.md)."""
    settings = Settings.load()
    log_to_stderr(settings)
    with needs("train"):
        from lightstream.trainers import Continuous, Rule
        from lightstream.trainers.algorithms.continuous import rules as built_in
        from lightstream.trainers.algorithms.continuous.continuous import told
    rules = [Rule.read(file) for file in leave_out or []]
    if take is not None:
        rules.append(Rule.read(take, takes=True))
    if consent is not None:
        rules.append(built_in.consent(*consent_of(consent)))
    if min_reward is not None:
        rules.append(built_in.quality(min_reward))
    if max_age is not None:
        rules.append(built_in.age(seconds_of("--max-age", max_age)))
    if share is not None:
        rules.append(built_in.share(share))
    if one_per_input:
        rules.append(built_in.one_per_input())
    continuous = Continuous(
        model,
        run_id=run_id,
        agent=agent,
        window=None if window is None else seconds_of("--window", window),
        count=count,
        lateness=seconds_of("--lateness", lateness),
        traffic=traffic,
        learner=learner,
        rules=rules,
        min_interval_s=seconds_of("--min-interval", min_interval),
        tokens_max=budget,
        release=release,
        gate=_gate(settings, release, gate_agent, gate_tasks, gate_traffic, consent, no_gate=no_gate, agent_name=agent),
        candidate_share=candidate_share,
        settings=settings,
        **_given(options or []),
    )
    if not dry_run:
        continuous.run(windows)
        return
    for planned in continuous.dry_run():
        console.print(told(planned), soft_wrap=True)


def lineage(
    version: Annotated[
        str | None, typer.Argument(metavar="RUN@VERSION", help="The version; without @ the newest one.")
    ] = None,
    rollout: Annotated[str | None, typer.Option(help="A rollout: the versions that answered its calls.")] = None,
    output: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.TABLE,
) -> None:
    """Show how a version was made, or the versions that answered a rollout: windows, rewards, judges, gate."""
    if (version is None) == (rollout is None):
        raise SettingsError("a lineage is of a version or of a rollout.", next_step="Give RUN@VERSION or --rollout ID.")
    settings = Settings.load()
    versions = [version] if version is not None else _answering(settings, str(rollout))
    tables = {one: _lineage(settings, one) for one in versions}
    if version is not None and not tables[version]["rows"]:
        raise NotFoundError(
            f"no step made version {version!r}.", next_step="`lightstream sql 'FROM resources'` lists the versions."
        )
    if output is Format.JSON:
        rows = [
            ({} if rollout is None else {"answered_by": one}) | dict(zip(table["columns"], row, strict=True))
            for one, table in tables.items()
            for row in table["rows"]
        ]
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    for one, table in tables.items():
        if version is None:
            taught = "" if table["rows"] else " No step made it."
            console.print(f"{one} answered.{taught}", soft_wrap=True)
        if table["rows"]:
            print_rows(console_for_rows(), table["columns"], table["rows"])


def _answering(settings: Settings, rollout: str) -> list[str]:
    """Versions that answered a rollout's calls.

    Raises:
        NotFoundError: none is of a run.
    """
    models = [row[0] for row in ask_view(settings, ":answered-by", params={"rollout": rollout})["rows"]]
    versions = [model for model in models if model.rpartition("@")[2].isdecimal()]
    if not versions:
        others = f": {', '.join(models)} did" if models else ""
        raise NotFoundError(
            f"no version of a run answered a call of rollout {rollout!r}{others}.",
            next_step="`lightstream explain ROLLOUT` shows its calls.",
        )
    return versions


def _lineage(settings: Settings, version: str) -> dict[str, Any]:
    """Columns and rows of the steps up to a version; no row where no step made it.

    Raises:
        SettingsError: it is no version.
    """
    run, at, number = version.rpartition("@")
    if at and not number.isdecimal():
        raise SettingsError(f"{version!r} is no version.", next_step="Give RUN@VERSION, such as support@3.")
    values = {"run": run, "version": int(number)} if at else {"run": version}
    return ask_view(settings, ":lineage", params=values)


def _gate(
    settings: Settings,
    release: str | None,
    agent: str | None,
    tasks: Path | None,
    traffic: int,
    consent: str | None,
    *,
    no_gate: bool,
    agent_name: str | None,
) -> Gate | None:
    """The gate of a release; ``None`` where it has none.

    Raises:
        SettingsError: the options do not fit together.
    """
    if release is None or no_gate:
        if agent is not None or tasks is not None or traffic:
            raise SettingsError(
                "a gate is described, and not used.", next_step="Name the release with --release, without --no-gate."
            )
        return None
    if agent is None or (tasks is None and not traffic):
        raise SettingsError(
            f"release {release!r} has no gate.",
            next_step="Give --gate-agent FILE.py:agent with --gate-tasks FILE or --gate-traffic COUNT, or --no-gate.",
        )
    from lightstream.trainers.evaluation import Gate as Judge
    from lightstream.trainers.evaluation import GatedSet, traffic_tasks
    from lightstream.trainers.evaluation.gating import FIXED, TRAFFIC

    loaded = load_agent(agent)
    fixed = {} if tasks is None else {FIXED: GatedSet(loaded, read_tasks(tasks), identity=code_of(agent))}

    def judge(release: str, stable: str, candidate: str, *, stop: Callable[[], bool]) -> GateReport:
        sample = (
            {
                TRAFFIC: GatedSet(
                    loaded,
                    traffic_tasks(
                        settings,
                        agent=agent_name,
                        count=traffic,
                        consent=None if consent is None else consent_of(consent),
                    ),
                    identity=code_of(agent),
                )
            }
            if traffic
            else {}
        )
        return Judge(settings, fixed | sample, by="learner")(release, stable, candidate, stop=stop)

    return judge


def _given(options: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            raise SettingsError(f"--set {option!r} has no value.", next_step="Write --set learning_rate=1e-5.")
        try:
            given[name] = json.loads(text)
        except ValueError:
            given[name] = text
    return given
