"""``lightstream topics …``."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from lightstream.runtime.kafka import change_topics, create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import TOPICS

app = typer.Typer(help="The topics on the cluster.", no_args_is_help=True)
console = Console(highlight=False)


@app.command()
def create() -> None:
    """Create the topics that are missing; one with other settings is reported, not changed."""
    created = create_topics(Settings.load())
    console.print(f"Created {', '.join(created)}." if created else "All topics exist as declared.")


@app.command()
def change() -> None:
    """Give topics that exist the settings that are declared now, such as a retention; partitions stay as many."""
    changed = change_topics(Settings.load())
    for one in changed:
        for name, (declared, found) in sorted(one.differences.items()):
            console.print(f"{one.topic}: {name} is {declared}, it was {found}.", soft_wrap=True)
    if not changed:
        console.print("All topics that exist are as declared.")


@app.command("list")
def list_topics() -> None:
    """List the topics as declared, with their records, writers and readers."""
    settings = Settings.load()
    table = Table("topic", "records", "partitions", "cleanup", "written by", "read by", show_lines=True)
    for column in table.columns:
        column.overflow = "fold"
    for topic in TOPICS:
        table.add_row(
            topic.full_name(settings.topic_prefix),
            ", ".join(record.__name__ for record in topic.records),
            str(topic.partitions(settings.topic_partitions)),
            topic.cleanup.value,
            ", ".join(topic.made_by),
            ", ".join(topic.read_by),
        )
    console.print(table)
