"""`tidegate snapshots topics`: the topics on Kafka, as they are and as they should be."""

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import counted
from tidegate.settings import Settings
from tidegate.snapshots.transport.kafka.opening import open_kafka

if TYPE_CHECKING:
    # It comes with the extra `kafka`.
    from tidegate.snapshots.transport.kafka.topics import TopicReport

_CREATE = typer.Option(False, "--create", help="Make those that are missing first. What is there stays as it is.")
_JSON = typer.Option(False, "--json", help="Print JSON.")


def topics(*, create: bool = _CREATE, as_json: bool = _JSON) -> None:
    """Show the topics that events travel on, where that is Kafka. Exit 1 where one is missing or otherwise made."""
    settings = load_settings()
    if settings.snapshots.transport != "kafka":
        typer.echo("[]" if as_json else "Redis Streams need no topics: a stream comes to be with its first event.")
        return
    made, reports = run(_topics(settings, create=create))
    if as_json:
        typer.echo(msgspec.json.encode([{**msgspec.to_builtins(each), "made": each.name in made} for each in reports]))
    else:
        for each in reports:
            typer.echo(_line(each, made=each.name in made))
    if any(each.differences for each in reports):
        raise typer.Exit(1)


async def _topics(settings: Settings, *, create: bool) -> "tuple[list[str], list[TopicReport]]":
    kafka = open_kafka(settings.snapshots.kafka)
    try:
        made = await kafka.create_topics() if create else []
        return made, await kafka.topics()
    finally:
        await kafka.close()


def _line(topic: "TopicReport", *, made: bool) -> str:
    if not topic.exists:
        return f"{topic.name}: missing. Make it with --create."
    shape = f"{counted(topic.partitions, 'partition')}, {counted(topic.replication, 'copy', 'copies')}"
    return f"{topic.name}: {'made, ' if made else ''}{shape}, {'; '.join(topic.differences) or 'as it should be'}"
