"""All commands."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from typer._completion_shared import get_completion_script
from typer.completion import get_completion_inspect_parameters

from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.settings import Settings
from lightstream.schemas.distribution import DISTRIBUTION, commit, installed_version
from lightstream.schemas.errors import LightstreamError, QueryError

from . import agent_commands, broker, export, gate, judge, learn, model, prices, release, runs, score, topics
from .formats import Format, RowFormat, TraceFormat
from .load import needs, require_stack

PROGRAM = "lightstream"
COMPLETION_VARIABLE = "_LIGHTSTREAM_COMPLETE"
"""The completion script sets it when it asks this program what to offer."""

Output = Annotated[Format, typer.Option("--format", help="Form of the output.")]

app = typer.Typer(
    name=PROGRAM,
    help="Reinforcement learning for any agent, from the event stream it leaves behind. "
    "Settings are environment variables (LIGHTSTREAM_*); `lightstream settings` shows them all.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.add_typer(export.app, name="export")
app.add_typer(runs.app, name="runs")
app.add_typer(prices.app, name="prices")
app.add_typer(model.app, name="model")
app.add_typer(release.app, name="release")
for _short, _command in release.SHORT.items():
    app.command(name=_short)(_command)
app.add_typer(agent_commands.app)
app.add_typer(gate.app)
app.command()(score.score)
app.command()(judge.judge)
app.command()(learn.learn)
app.command()(learn.lineage)


def _show_version(is_set: bool) -> None:
    if is_set:
        known = commit()
        print(f"{DISTRIBUTION} {installed_version()}" + (f" (commit {known})" if known else ""))
        raise typer.Exit


@app.callback()
def lightstream(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and the commit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options that all commands have."""


@app.command()
def up(
    worker: Annotated[bool, typer.Option(help="Run the stream processors.")] = True,
    view: Annotated[bool, typer.Option(help="Run the DuckDB view and its SQL server.")] = True,
    proxy: Annotated[bool, typer.Option(help="Run the LLM proxy.")] = True,
    gateway: Annotated[bool, typer.Option(help="Run the OTLP gateway.")] = True,
    policy: Annotated[bool, typer.Option(help="Run the policy server.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="Model folder of the policy server.")] = None,
    run_id: Annotated[str, typer.Option(help="Run whose resources the policy server follows; empty means all.")] = "",
    brokers: Annotated[
        int | None,
        typer.Option(min=1, max=3, help="Brokers of the embedded Kafka, 1 or 3; in place of LIGHTSTREAM_BROKERS."),
    ] = None,
) -> None:
    """Run everything on this machine, until Ctrl-C."""
    chosen = {"worker": worker, "view": view, "proxy": proxy, "gateway": gateway, "policy": policy}
    services = [name for name, is_chosen in chosen.items() if is_chosen]
    settings = Settings.load() if brokers is None else Settings.load(brokers=brokers)
    require_stack(settings, services)
    from .up import run_up

    log_to_stderr(settings, logging.WARNING)
    run_up(settings, services, checkpoint, run_id)


@app.command()
def worker() -> None:
    """Run the stream processors (life cycle and assembler)."""
    log_to_stderr(Settings.load())
    with needs("processors"):
        from lightstream.stream_processors.worker import run as run_service
    run_service(Settings.load())


@app.command()
def view(
    name: Annotated[
        str, typer.Option(help="Name of a view beside the one that training asks, with a file and a port of its own.")
    ] = "",
) -> None:
    """Run the DuckDB view: follows all topics, answers SQL."""
    log_to_stderr(Settings.load())
    with needs("view"):
        from lightstream.store_views.server import run as run_service
    run_service(Settings.load(), name=name)


@app.command()
def store(
    memory: Annotated[
        bool, typer.Option("--memory", help="A store in memory, gone at the end; needs no Kafka.")
    ] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Where to listen; 0 means any free one.")] = None,
) -> None:
    """Run the store's HTTP server, for agents and algorithms without access to Kafka."""
    log_to_stderr(Settings.load())
    with needs("view"):
        from lightstream.store_views.server.of_memory import MemoryDashboard
        from lightstream.store_views.stores.http import MakeTraces
        from lightstream.store_views.stores.http import run as run_service
    traces: MakeTraces | None = None
    try:
        with needs("gateway"):
            from lightstream.up.store_traces import traces_of_store

        traces = traces_of_store
    except LightstreamError as error:
        logging.getLogger(__name__).warning("the store takes no OTLP: %s %s", error.message, error.next_step)
    run_service(Settings.load(), traces, MemoryDashboard, in_memory=memory, port=port)


@app.command()
def proxy() -> None:
    """Run the LLM proxy: the interfaces of OpenAI and Anthropic, recorded."""
    log_to_stderr(Settings.load())
    with needs("proxy"):
        from lightstream.producers.llm_proxy import run as run_service
    run_service(Settings.load())


@app.command()
def gateway() -> None:
    """Run the OTLP gateway: accepts spans and logs over HTTP and gRPC."""
    log_to_stderr(Settings.load())
    with needs("gateway"):
        from lightstream.producers.otlp.gateway import run as run_service
    run_service(Settings.load())


@app.command()
def policy(
    checkpoint: Annotated[Path | None, typer.Option(help="Model folder to serve until one is published.")] = None,
    run_id: Annotated[str, typer.Option(help="Run whose resources to follow; empty means all.")] = "",
) -> None:
    """Run the policy server: serves the model under training, version by version."""
    log_to_stderr(Settings.load())
    with needs("train"):
        from lightstream.trainers.servers.cpu import run as run_service
    run_service(Settings.load(), checkpoint=checkpoint, run_id=run_id)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def vllm(
    context: typer.Context,
    checkpoint: Annotated[Path | None, typer.Option(help="Model folder to serve until one is published.")] = None,
    run_id: Annotated[str, typer.Option(help="Run whose resources to follow; empty means all.")] = "",
    python: Annotated[str, typer.Option(help="Python of vLLM's environment; by default this one.")] = sys.executable,
) -> None:
    """Run vLLM in place of the policy server. Further options are vLLM's own."""
    log_to_stderr(Settings.load())
    with needs("train"):
        from lightstream.trainers.servers.vllm import VllmOptions
        from lightstream.trainers.servers.vllm import run as run_service
    options = VllmOptions(python=python, arguments=tuple(context.args))
    run_service(Settings.load(), options, checkpoint=checkpoint, run_id=run_id)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sql(
    context: typer.Context,
    query: Annotated[
        str | None,
        typer.Argument(
            help="One SELECT statement; `-` reads statements from standard input; :NAME is a query that there is, and "
            ": lists these; by default a prompt, or what comes by a pipe. Values of $name are given as --name VALUE.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="File of statements, each with a ; at its end.")
    ] = None,
    output: Annotated[RowFormat, typer.Option("--format", help="Form of the answer.")] = RowFormat.TABLE,
    vertical: Annotated[bool, typer.Option("--vertical", "-x", help="Each column on a line of its own.")] = False,
    every_row: Annotated[bool, typer.Option("--all", help="All rows of a table, not only the first 100.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds that the statement may run.")] = 30.0,
    view_name: Annotated[str, typer.Option("--view", help="Name of another view: `lightstream view --name bi`.")] = "",
) -> None:
    """Query the view, also while everything runs."""
    from .sql import Question, read_script, run_queries_list, run_sql, values_given
    from .view_query import ViewSource

    source = ViewSource(Settings.load(), timeout_s=timeout_s, name=view_name)
    if query is not None and file is not None:
        raise QueryError("there is a statement and a file of them.", next_step="Give one or the other.")
    if file is not None or query == "-" or (query is None and not sys.stdin.isatty()):
        from .sql_script import run_script

        text = read_script(file)
        run_script(source, text, values_given(context.args), output, vertical=vertical, every_row=every_row)
    elif query is None:
        from .sql_prompt import run_prompt

        values_given(context.args, refuse=True)
        run_prompt(source)
    elif query == ":":
        run_queries_list()
    else:
        question = Question.of(query, values_given(context.args))
        run_sql(source, question, output, vertical=vertical, every_row=every_row)


@app.command()
def explain(
    rollout_id: Annotated[str, typer.Argument(help="The rollout.")],
    output: Output = Format.TABLE,
) -> None:
    """Explain a rollout: its LLM calls, its rewards, and the step that trained on it."""
    from .explain import run_explain

    run_explain(Settings.load(), rollout_id, output)


@app.command()
def blame(
    answer: Annotated[str, typer.Argument(help="Span or response id of a call, or a rollout: its last call.")],
    limit: Annotated[int, typer.Option(min=1, help="How many calls to name.")] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Name the trained calls that did most to make an answer more probable (docs/questions.md)."""
    from .blame import run_blame

    run_blame(Settings.load(), answer, limit, output)


@app.command()
def replay(
    start: Annotated[
        str, typer.Option("--from", help="Attempts that began since: earliest, an ISO time, or 90m, 2h, 3d ago.")
    ] = "earliest",
    end: Annotated[
        str | None, typer.Option("--to", help="Attempts that began before: an ISO time, or 90m, 2h, 3d ago.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Attempts of this run.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Attempts for which this holds: a condition on the view `trajectories`, in SQL.")
    ] = None,
    without: Annotated[
        str | None, typer.Option(help="Leave out attempts for which this holds: such a condition. Also with --train.")
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help="Reward rule: file.py (its function `reward`), or module:function.")
    ] = None,
    errors_max: Annotated[
        int, typer.Option(help="Stop when the reward rule raises in more attempts than these.", min=0)
    ] = 10,
    credit: Annotated[
        str | None, typer.Option(help="Credit rule; by default the run's own, else as configured.")
    ] = None,
    reward_match: Annotated[
        str | None,
        typer.Option(help="What a reward without a link is for; by default the run's own, else as configured."),
    ] = None,
    automatic: Annotated[
        list[str] | None, typer.Option(help="Automatic reward, such as tool_error:-0.1; by default as configured.")
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(help="Regular expression of the agents to train; by default the run's own, else as configured."),
    ] = None,
    merge: Annotated[str, typer.Option(help="How calls become sequences: prefix or none.")] = "prefix",
    tokens_max: Annotated[int | None, typer.Option(help="Longest merged sequence, in tokens.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Parquet file for the new trajectories.")] = None,
    level: Annotated[str, typer.Option(help="Rows of that file: one per call or per segment.")] = "call",
    to_prefix: Annotated[str | None, typer.Option(help="Publish the trajectories under this topic prefix.")] = None,
    train: Annotated[
        str | None,
        typer.Option(help="Make the training steps of this run again, and compare; --out is the folder for weights."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Assemble history again by other rules and compare; or train on it again."""
    if train is not None and (without is not None or reward is not None):
        from .fork import run_fork

        run_fork(Settings.load(), train, 0, reward, without, errors_max, out, output)
        return
    if train is not None:
        from .replay_training import run_replay_training

        run_replay_training(Settings.load(), train, out)
        return
    from lightstream.schemas.records import AssemblySpec
    from lightstream.stream_processors.core.assembly import AssemblyRules
    from lightstream.stream_processors.replay import ReplayRules, load_reward_rule

    from .replay import run_replay, select

    settings = Settings.load()
    configured = AssemblyRules.of(settings)
    rules = ReplayRules(
        replace(
            configured,
            credit=credit or configured.credit,
            reward_match=reward_match or configured.reward_match,
            automatic_rewards=tuple(automatic) if automatic else configured.automatic_rewards,
            agents=agents or configured.agents,
        ),
        None if reward is None else load_reward_rule(reward),
        merge,
        tokens_max,
        errors_max,
        AssemblySpec(credit=credit or None, reward_match=reward_match or None, trained_agents=agents or None),
    )
    run_replay(settings, rules, select(settings, start, end, run_id, where, without), out, level, to_prefix, output)


@app.command()
def fork(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run to fork.")],
    at: Annotated[int, typer.Option(help="The last step to keep as it was; 0: none.", min=0)] = 0,
    reward: Annotated[
        str | None, typer.Option(help="Reward rule: file.py (its function `reward`), or module:function.")
    ] = None,
    without: Annotated[
        str | None, typer.Option(help="Attempts to leave out: a condition on the view `trajectories`, in SQL.")
    ] = None,
    errors_max: Annotated[
        int, typer.Option(help="Stop when the reward rule raises in more attempts than these.", min=0)
    ] = 10,
    out: Annotated[Path | None, typer.Option(help="Folder for weights; by default .lightstream/forks/RUN.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Train a run again from a step on, with other rewards or without some rollouts, and compare."""
    from .fork import run_fork

    run_fork(Settings.load(), run_id, at, reward, without, errors_max, out, output)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Files of JSON, JSON lines or Parquet; gzip is unpacked.")],
    run_id: Annotated[str, typer.Option(help="The run that the traces become part of.")],
    kind: Annotated[TraceFormat, typer.Option("--format", help="Form of the files.")] = TraceFormat.AUTO,
    score: Annotated[str | None, typer.Option(help="Langfuse score or Phoenix annotation that is the reward.")] = None,
) -> None:
    """Import traces that were recorded elsewhere into a run: each becomes a finished rollout."""
    from .traces import run_import

    run_import(Settings.load(), files, run_id, kind, score)


@app.command("attach-trace")
def attach_trace(
    trace_id: Annotated[str, typer.Argument(help="The trace: 32 hex digits.")],
    rollout: Annotated[str, typer.Option(help="The rollout that its spans belong to.")],
    attempt: Annotated[str | None, typer.Option(help="Which attempt; by default the latest.")] = None,
) -> None:
    """Attach a trace that named no rollout to a rollout."""
    from .traces import run_attach_trace

    run_attach_trace(Settings.load(), trace_id, rollout, attempt)


@app.command()
def doctor(
    output: Output = Format.TABLE,
) -> None:
    """Find faults of the system and name the next steps. Exits with 1 for an error."""
    from .doctor import run_doctor

    raise typer.Exit(run_doctor(Settings.load(), output))


@app.command()
def status(
    output: Output = Format.TABLE,
) -> None:
    """Show processes, their ports, the lag of consumers, and the size of topics."""
    from .status import run_status

    run_status(Settings.load(), output)


@app.command()
def du(
    output: Output = Format.TABLE,
) -> None:
    """Show disk use by topics, view, checkpoints, large records and caches; also by run."""
    from .du import run_du

    run_du(Settings.load(), output)


@app.command()
def settings(
    output: Output = Format.TABLE,
) -> None:
    """Show every setting: its value, and whether that is from the environment or the default."""
    from .settings import run_settings

    run_settings(Settings.load(), output)


def _logs_there_are(incomplete: str) -> list[str]:
    from .logs import names_of_logs

    return [name for name in names_of_logs(Settings.load()) if name.startswith(incomplete)]


@app.command()
def logs(
    service: Annotated[
        str | None,
        typer.Argument(help="worker, view, proxy, …; by default all.", autocompletion=_logs_there_are),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Lines of each log.", min=0)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what comes too, until Ctrl-C.")] = False,
) -> None:
    """Show the logs of the processes of `lightstream up`."""
    from .logs import run_logs

    run_logs(Settings.load(), service, lines, follows=follow)


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print a script that completes commands and options: `source <(lightstream completion bash)`."""
    print(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, shell=shell.value))


def run() -> None:
    """Run the command that the arguments name."""
    if COMPLETION_VARIABLE in os.environ:
        get_completion_inspect_parameters()  # registers the shells; Typer answers
    try:
        app(prog_name=PROGRAM)
    except LightstreamError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(1)
