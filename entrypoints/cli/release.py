"""``lightstream release``: the models that serve a name, and the changes of these."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, StoreError
from lightstream.schemas.records import GateOutcome, ReleaseChanged, ReleaseKey, ReleaseRule
from lightstream.schemas.releases import (
    Author,
    Release,
    offer,
    pause,
    promote,
    resume,
    roll_back,
    set_share,
    set_stable,
)

from .formats import Format
from .rows import console_for_rows, print_rows
from .user import by_command_line

app = typer.Typer(help="Show and change releases: names that agents ask for as a model.", no_args_is_help=True)
console = Console(highlight=False)

Name = Annotated[str, typer.Argument(metavar="RELEASE", help="The release.", show_default=False)]
Reason = Annotated[str, typer.Option(help="Reason for the change, kept in its history.")]
Output = Annotated[Format, typer.Option("--format", help="Form of the output.")]
Wish = Callable[[Release, Author], ReleaseChanged]


@app.command(name="list")
def list_(output: Output = Format.TABLE) -> None:
    """Show every release as it is now."""
    states = [state for _, state in sorted(_log_states().items())]
    if output is Format.JSON:
        print(json.dumps([state.model_dump(mode="json") for state in states], indent=2))
        return
    columns = ["release", "stable", "candidate", "share", "key", "paused", "rules"]
    rows = [
        [s.release, s.stable, s.candidate, s.share if s.candidate else None, str(s.key), s.paused, len(s.rules)]
        for s in states
    ]
    print_rows(console_for_rows(), columns, rows)


@app.command()
def history(release: Name, output: Output = Format.TABLE) -> None:
    """Show every change of a release, the first one first."""
    from lightstream.runtime.releases import ReleaseLog

    changes = ReleaseLog(Settings.load()).history(release)
    if not changes:
        raise StoreError(f"there is no release {release!r}.", next_step="`lightstream release list` shows them.")
    if output is Format.JSON:
        print(json.dumps([change.model_dump(mode="json") for change in changes], indent=2))
        return
    columns = ["revision", "action", "stable", "candidate", "share", "by", "reason"]
    rows = [[c.revision, str(c.action), c.stable, c.candidate, c.share, c.by, c.reason] for c in changes]
    print_rows(console_for_rows(), columns, rows)


@app.command(name="set")
def set_(
    release: Name,
    stable: Annotated[str | None, typer.Option(help="Model that serves it, such as RUN@VERSION.")] = None,
    key: Annotated[ReleaseKey | None, typer.Option(help="Value that keeps a caller on its arm.")] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="Rule that rolls a candidate back, as NAME=SELECT or NAME=@FILE; replaces all earlier ones."),
    ] = None,
    no_rules: Annotated[bool, typer.Option("--no-rules", help="Remove all rules.")] = False,
    reason: Reason = "",
    output: Output = Format.TABLE,
) -> None:
    """Make a release, or set its stable model, key or rules."""
    rules = [] if no_rules else None if not rule else [_rule(text) for text in rule]
    if key is ReleaseKey.UNKNOWN:
        raise SettingsError("unknown is no key.", next_step="Use session, user or rollout.")
    _change(release, partial(set_stable, stable=stable, key=key, rules=rules), reason, output)


@app.command(name="offer")
def offer_(
    release: Name,
    candidate: Annotated[str, typer.Argument(help="Model to try, such as RUN@VERSION.")],
    share: Annotated[float, typer.Option(help="Share of the keys that it serves, 0 to 1.")] = 0.1,
    report: Annotated[
        str | None, typer.Option(help="Id of the gate's report that allowed it; by default nobody asked the gate.")
    ] = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
) -> None:
    """Have a candidate serve a share of the sessions."""
    if report is not None:
        _check_report(release, candidate, report)
    _change(release, partial(offer, candidate=candidate, share=share, report_id=report), reason, output)


@app.command()
def share(
    release: Name,
    to: Annotated[float, typer.Argument(metavar="SHARE", help="Share of the keys, 0 to 1.")],
    reason: Reason = "",
    output: Output = Format.TABLE,
) -> None:
    """Change the candidate's share."""
    _change(release, partial(set_share, share=to), reason, output)


def promote_(release: Name, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """Make a release's candidate its stable model."""
    _change(release, promote, reason, output)


def rollback(
    release: Name,
    to_previous: Annotated[
        bool, typer.Option("--to-previous", help="Return to the stable model before, where there is no candidate.")
    ] = False,
    reason: Reason = "",
    output: Output = Format.TABLE,
) -> None:
    """Take a release's candidate away."""
    _change(release, partial(roll_back, to_previous=to_previous), reason, output)


def pause_(release: Name, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """Have the stable model serve every call of a release, and stop learning."""
    _change(release, pause, reason, output)


@app.command(name="resume")
def resume_(release: Name, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """End the pause of a release; its candidate has its share again."""
    _change(release, resume, reason, output)


SHORT: dict[str, Callable[..., None]] = {"promote": promote_, "rollback": rollback, "pause": pause_}
"""Commands that are there without ``release`` in front, too."""
for _name, _command in SHORT.items():
    app.command(name=_name)(_command)


def _change(release: str, wish: Wish, reason: str, output: Format) -> None:
    from lightstream.runtime.releases import ReleaseLog

    changed = ReleaseLog(Settings.load()).change(release, (by_command_line(), reason), wish)
    if output is Format.JSON:
        print(changed.model_dump_json(indent=2))
        return
    candidate = f", and {changed.candidate} has a share of {changed.share:g}" if changed.candidate else ""
    paused = "; it is paused" if changed.paused else ""
    console.print(f"{release}: {changed.stable} serves it{candidate}{paused}.", soft_wrap=True)


def _check_report(release: str, candidate: str, report_id: str) -> None:
    """Refuse a report that does not allow this candidate.

    Raises:
        StoreError: there is no such report, or it did not pass, or it is of another candidate.
    """
    from lightstream.runtime.releases import ReleaseLog

    found = {report.report_id: report for report in ReleaseLog(Settings.load()).reports(release)}.get(report_id)
    if found is None:
        raise StoreError(
            f"release {release!r} has no report {report_id!r}.", next_step="`SELECT * FROM gate_reports` shows them."
        )
    if found.candidate != candidate or found.outcome is not GateOutcome.PASSED:
        raise StoreError(
            f"report {report_id!r} says {found.outcome} of {found.candidate!r}.",
            next_step="Take the candidate through the gate: `lightstream gate`.",
        )


def _log_states() -> dict[str, ReleaseChanged]:
    from lightstream.runtime.releases import ReleaseLog

    return ReleaseLog(Settings.load()).states()


def _rule(text: str) -> ReleaseRule:
    name, equals, sql = text.partition("=")
    if not (name.strip() and equals and sql.strip()):
        raise SettingsError(f"a rule is NAME=SELECT … or NAME=@FILE, not {text!r:.200}.")
    if sql.startswith("@"):
        try:
            sql = Path(sql[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"the file of the rule {name.strip()!r} cannot be read: {error}.") from error
    return ReleaseRule(name=name.strip(), sql=sql.strip())
