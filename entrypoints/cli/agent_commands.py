"""Commands that run agents: ``train``, ``runner`` and ``eval``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.settings import Settings

BELOW_BOUND = 3
"""Exit status of `eval` where a model is worth less than `--at-least` or `--at-most-worse` allow."""

app = typer.Typer()

AgentName = Annotated[str | None, typer.Argument(help="The agent: FILE.py:agent or module:agent.", show_default=False)]
Command = Annotated[
    str | None, typer.Option(help="In place of an agent in Python: a command for the shell, run for each attempt.")
]
Verifier = Annotated[
    str | None, typer.Option(help="A command that judges what the command did: exit status 0 is 1, 1 is 0.")
]
Env = Annotated[
    str | None,
    typer.Option(
        help="An environment: verifiers:NAME, reasoning-gym:NAME, gymnasium:ID, folder:PATH, openenv:URL, or yours "
        "(FILE.py:environment)."
    ),
]
EnvOption = Annotated[
    list[str] | None, typer.Option(help="An option of the environment, such as size=500; may be repeated.")
]
RewardOf = Annotated[str, typer.Option(help="`program`: the command says it; `exit`: 1 for its exit status 0, else 0.")]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    agent: AgentName = None,
    tasks: Annotated[Path | None, typer.Option(help="File of tasks: JSON lines, or a JSON list.")] = None,
    env: Env = None,
    env_option: EnvOption = None,
    validation: Annotated[Path | None, typer.Option(help="File of tasks to measure on.")] = None,
    algorithm: Annotated[
        str, typer.Option(help="grpo, rloo, … (VERL's advantages), verl (with --config), or FILE.py:algorithm.")
    ] = "grpo",
    options: Annotated[
        list[str] | None, typer.Option("--set", help="An option of VERL, such as steps=30; may be repeated.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="verl's own configuration, YAML or JSON.")] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Name of the run; by default as the agent's file or the environment.")
    ] = None,
    runners: Annotated[int, typer.Option(min=0, help="Runner processes to start.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once in each.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    track: Annotated[
        list[str] | None, typer.Option(help="tensorboard, wandb, mlflow or trackio; may be repeated.")
    ] = None,
    take_over: Annotated[bool, typer.Option(help="Do not ask whether another process trains this run.")] = False,
) -> None:
    """Train an agent on a file of tasks, or in an environment (--env); the same command goes on after a crash.

    Each option of VERL is a flag too, such as --learning-rate 1e-5; docs/options.md lists them.
    """
    from .train import learners_of, options_given, run_train

    log_to_stderr(Settings.load(), logging.WARNING)
    run_train(
        Settings.load(),
        learners_of(agent, tasks, validation, env, env_option or []),
        algorithm=algorithm,
        options=[*(options or []), *options_given(context.args)],
        config=config,
        run_id=run_id,
        runners=runners,
        concurrency=concurrency,
        seed=seed,
        track=track or [],
        take_over=take_over,
    )


@app.command()
def runner(
    agent: AgentName = None,
    command: Command = None,
    env: Env = None,
    env_option: EnvOption = None,
    verifier: Verifier = None,
    reward: Annotated[
        str | None,
        typer.Option(help="`program` (default): the command says it; `exit`: 1 for its exit status 0, else 0."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Which attempts' folders stay: `failed` (default), `always` or `never`.")
    ] = None,
    folder_mb_max: Annotated[
        int | None, typer.Option(min=1, help="Most MB that an attempt's folder may grow to (default 1024).")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Run whose rollouts it takes, `*` for any; by default as the agent's file.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once.")] = 16,
    rollouts: Annotated[int | None, typer.Option(min=1, help="End after so many attempts.")] = None,
) -> None:
    """Run an agent on the rollouts of a run, until Ctrl-C."""
    from .environments import name_of_environment, no_options_without_environment, only_environment
    from .runner import FOLDER_MB_MAX, agent_of, run_runner

    settings = Settings.load()
    log_to_stderr(settings, logging.WARNING)
    if env is not None:
        of_commands = {"--verifier": verifier, "--reward": reward, "--keep": keep, "--folder-mb-max": folder_mb_max}
        environment = only_environment(env, env_option or [], agent=agent, command=command, **of_commands)
        run_runner(settings, environment, run_id or name_of_environment(env), concurrency, rollouts)
        return
    no_options_without_environment(env_option)
    chosen = agent_of(
        settings, agent, command, verifier, reward or "program", keep or "failed", folder_mb_max or FOLDER_MB_MAX
    )
    run_runner(settings, chosen, run_id, concurrency, rollouts)


@app.command("eval")
def evaluate(
    agent: AgentName = None,
    tasks: Annotated[Path | None, typer.Option(help="File of tasks: JSON lines, or a JSON list.")] = None,
    env: Env = None,
    env_option: EnvOption = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model that the proxy serves; repeat it. The first is compared with."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers for each task and model.")] = 1,
    passes_from: Annotated[float, typer.Option(help="An answer with at least this reward passes.")] = 1.0,
    sampling: Annotated[str, typer.Option(help="Sampling parameters of the calls, as a JSON object.")] = "{}",
    command: Command = None,
    verifier: Verifier = None,
    reward: RewardOf = "program",
    name: Annotated[str | None, typer.Option(help="Name of the run; by default eval- and the agent's file.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once.")] = 16,
    at_least: Annotated[
        float | None, typer.Option(help="Exit with 3 if the mean reward of a model is below this.")
    ] = None,
    at_most_worse: Annotated[
        float | None,
        typer.Option(min=0.0, help="Exit with 3 unless each model is surely at most this much worse than the first."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run an agent on tasks with one or several models: rewards, pass@k, intervals, comparison, tokens, cost.

    The same command goes on with an evaluation that was interrupted.
    """
    from .evaluate import evaluated_of, run_evaluation, sampling_of

    settings = Settings.load()
    log_to_stderr(settings, logging.WARNING)
    chosen = evaluated_of(settings, agent, command, verifier, reward, tasks, env, env_option or [])
    passed = run_evaluation(
        settings,
        chosen.agent,
        chosen.evaluation(name, models or [], samples, sampling_of(sampling)),
        passes_from=passes_from,
        concurrency=concurrency,
        at_least=at_least,
        at_most_worse=at_most_worse,
        as_json=as_json,
    )
    if not passed:
        raise typer.Exit(BELOW_BOUND)
