"""All commands."""

from __future__ import annotations

import logging
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.settings import Settings

from . import broker, export, topics
from .load import load, log_to_stderr

__all__ = ["app", "main"]

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it (128 + SIGINT)."""

app = typer.Typer(
    name="lightstream",
    help="Reinforcement learning for any agent, from the event stream it leaves behind. "
    "Settings are environment variables (LIGHTSTREAM_*); `lightstream settings` shows them all.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.add_typer(export.app, name="export")


@app.command()
def up(
    worker: Annotated[bool, typer.Option(help="Run the stream processors.")] = True,
    view: Annotated[bool, typer.Option(help="Run the DuckDB view and its SQL server.")] = True,
    proxy: Annotated[bool, typer.Option(help="Run the LLM proxy.")] = True,
    gateway: Annotated[bool, typer.Option(help="Run the OTLP gateway.")] = True,
    policy: Annotated[bool, typer.Option(help="Run the policy server.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="Model folder of the policy server.")] = None,
    run_id: Annotated[str, typer.Option(help="Run whose resources the policy server follows; empty means all.")] = "",
) -> None:
    """Run everything on this machine, until Ctrl-C."""
    from .up import run_up

    chosen = {"worker": worker, "view": view, "proxy": proxy, "gateway": gateway, "policy": policy}
    log_to_stderr(logging.WARNING)
    run_up(Settings.load(), [name for name, wanted in chosen.items() if wanted], checkpoint, run_id)


@app.command()
def worker() -> None:
    """Run the stream processors (life cycle and assembler)."""
    log_to_stderr()
    load("lightstream.stream_processors.worker", "run")(Settings.load())


@app.command()
def view() -> None:
    """Run the DuckDB view: follows all topics, answers SQL."""
    log_to_stderr()
    load("lightstream.store_views.server", "run")(Settings.load())


@app.command()
def store() -> None:
    """Run the store's HTTP server, for agents and algorithms without access to Kafka."""
    log_to_stderr()
    try:
        traces = load("lightstream.processes.store_traces", "traces_of_store")
    except LightstreamError as error:
        logging.getLogger(__name__).warning("the store takes no OTLP: %s %s", error.message, error.next_step)
        traces = None
    load("lightstream.store_views.stores.http", "run")(Settings.load(), traces)


@app.command()
def proxy() -> None:
    """Run the LLM proxy: the interfaces of OpenAI and Anthropic, recorded."""
    log_to_stderr()
    load("lightstream.producers.llm_proxy", "run")(Settings.load())


@app.command()
def gateway() -> None:
    """Run the OTLP gateway: accepts spans and logs over HTTP and gRPC."""
    log_to_stderr()
    load("lightstream.producers.otlp.gateway", "run")(Settings.load())


@app.command()
def policy(
    checkpoint: Annotated[Path | None, typer.Option(help="Model folder to serve until one is published.")] = None,
    run_id: Annotated[str, typer.Option(help="Run whose resources to follow; empty means all.")] = "",
) -> None:
    """Run the policy server: serves the model under training, version by version."""
    log_to_stderr()
    load("lightstream.trainers.policy_server", "run")(Settings.load(), checkpoint=checkpoint, run_id=run_id)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT statement; `-` reads it from standard input.")],
    output: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Query the view, also while everything runs."""
    from .sql import run_sql

    run_sql(Settings.load(), sys.stdin.read() if query == "-" else query, output)


@app.command()
def explain(
    rollout_id: Annotated[str, typer.Argument(help="The rollout.")],
    output: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Show what became of a rollout's LLM calls and rewards, and whether it was trained on."""
    from .explain import run_explain

    run_explain(Settings.load(), rollout_id, output)


@app.command()
def replay(
    start: Annotated[
        str, typer.Option("--from", help="earliest, an ISO time, or a time ago: 90m, 2h, 3d.")
    ] = "earliest",
    reward: Annotated[
        str | None, typer.Option(help="Reward rule: file.py (its function `reward`), or module:function.")
    ] = None,
    credit: Annotated[str | None, typer.Option(help="Credit rule; by default as configured.")] = None,
    reward_match: Annotated[
        str | None, typer.Option(help="What a reward without a link is for; by default as configured.")
    ] = None,
    automatic: Annotated[
        list[str] | None, typer.Option(help="Automatic reward, such as tool_error:-0.1; by default as configured.")
    ] = None,
    agents: Annotated[
        str | None, typer.Option(help="Regular expression of the agents to train; by default as configured.")
    ] = None,
    merge: Annotated[str, typer.Option(help="How calls become sequences: prefix or none.")] = "prefix",
    tokens_max: Annotated[int | None, typer.Option(help="Longest merged sequence, in tokens.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Parquet file for the new trajectories.")] = None,
    level: Annotated[str, typer.Option(help="Rows of that file: one per call or per segment.")] = "call",
    to_prefix: Annotated[str | None, typer.Option(help="Publish the trajectories under this topic prefix.")] = None,
    output: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Assemble history again by other rules, and show what differs from what was trained on."""
    from lightstream.stream_processors.core.assembly import AssemblyRules
    from lightstream.stream_processors.replay import ReplayRules, load_reward_rule

    from .replay import run_replay

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
    )
    run_replay(settings, rules, start, out, level, to_prefix, output)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Files of JSON or JSON lines.")],
    run_id: Annotated[str, typer.Option(help="The run that the traces become part of.")],
    kind: Annotated[str, typer.Option("--format", help="auto, otlp, langfuse, phoenix or atif.")] = "auto",
    score: Annotated[str | None, typer.Option(help="Langfuse score or Phoenix annotation that is the reward.")] = None,
) -> None:
    """Import traces that were recorded elsewhere into a run: each becomes a finished rollout."""
    from .import_traces import run_import

    run_import(Settings.load(), files, run_id, kind, score)


@app.command()
def claim(
    trace_id: Annotated[str, typer.Argument(help="The trace: 32 hex digits.")],
    rollout: Annotated[str, typer.Option(help="The rollout that its spans belong to.")],
    attempt: Annotated[str | None, typer.Option(help="Which attempt; by default the latest.")] = None,
) -> None:
    """Give the spans of a trace that named no rollout to a rollout."""
    from .claim import run_claim

    run_claim(Settings.load(), trace_id, rollout, attempt)


@app.command()
def status(
    output: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Show what runs, on which ports, how far consumers lag, and how full the topics are."""
    from .status import run_status

    run_status(Settings.load(), output)


@app.command()
def settings(
    output: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Show every setting: its value, and whether that is from the environment or the default."""
    from .settings import run_settings

    run_settings(Settings.load(), output)


def main() -> None:
    """Entry point: an error a person can act on is one message and exit status 1, never a traceback."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `lightstream sql … | head` ends quietly
    try:
        app()
    except LightstreamError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
