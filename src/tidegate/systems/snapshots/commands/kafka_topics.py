"""`tidegate snapshots topics`: topics on Kafka, their differences from the specification, and replay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import counted
from tidegate.systems.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from tidegate.settings import Settings

    # It comes with the extra `kafka`.
    from tidegate.systems.snapshots.transports.kafka.transport import TopicReport
    from tidegate.systems.snapshots.transports.protocol import RefreshTopic

_CREATE = typer.Option(False, "--create", help="Create missing topics first. Existing topics are not changed.")
_NO_TOPICS = (
    "The transport is Redis Streams, which need no topics: a stream is created by its first event. "
    "For Kafka set TIDEGATE_SNAPSHOTS__TRANSPORT=kafka and TIDEGATE_SNAPSHOTS__KAFKA__SERVERS"
)
_JSON = typer.Option(False, "--json", help="Print JSON.")
_SET_BACK = typer.Option(
    None,
    metavar="TOPIC",
    help="Let the workers of update-priority-high or -low read again from --to. Stop them first.",
)
_TO = typer.Option(
    None,
    metavar="PLACE",
    help="A time such as 2026-11-15T12:00Z, for all partitions; or PARTITION:OFFSET, once for each.",
)


def topics(
    *, create: bool = _CREATE, set_back: str | None = _SET_BACK, to: list[str] | None = _TO, as_json: bool = _JSON
) -> None:
    """Show the topics on Kafka. Exit 1 if one is missing or differs from its specification."""
    settings = load_settings()
    if set_back is not None or to:
        _set_back(settings, set_back, to or [], as_json=as_json)
        return
    if settings.section(SnapshotSettings).transport != "kafka":
        typer.echo("[]" if as_json else _NO_TOPICS)
        return
    made, reports = run(_topics(settings, create=create))
    if as_json:
        typer.echo(msgspec.json.encode([{**msgspec.to_builtins(each), "made": each.name in made} for each in reports]))
    else:
        for each in reports:
            typer.echo(_line(each, made=each.name in made))
    if any(each.differences for each in reports):
        raise typer.Exit(1)


def _set_back(settings: Settings, name: str | None, to: list[str], *, as_json: bool) -> None:
    from tidegate.systems.snapshots.transports.protocol import GROUPS

    if settings.section(SnapshotSettings).transport != "kafka":
        raise typer.BadParameter("only Kafka keeps processed events; Redis Streams cannot be read again")
    topic = next((each for each in GROUPS if each == name), None)
    if topic is None:
        raise typer.BadParameter(f"--set-back needs one of {', '.join(GROUPS)}")
    places, waiting = run(_read_again(settings, topic, _parse_place(to)))
    if as_json:
        typer.echo(msgspec.json.encode({"topic": topic, "group": GROUPS[topic], "places": places, "waiting": waiting}))
        return
    typer.echo(
        f"{GROUPS[topic]} continues in {counted(len(places), 'partition')} of {topic}; {counted(waiting, 'event')} in "
        f"all wait for it. Start the workers again; obsolete events are skipped without a call."
    )


async def _read_again(
    settings: Settings, topic: RefreshTopic, since: datetime | Mapping[int, int]
) -> tuple[dict[int, int], int]:
    from tidegate.systems.snapshots.transports.opening import open_kafka
    from tidegate.systems.snapshots.transports.protocol import GROUPS

    kafka = open_kafka(settings.section(SnapshotSettings).kafka)
    try:
        places = await kafka.set_back(topic, GROUPS[topic], since)
        return places, await kafka.lag(topic, GROUPS[topic])
    finally:
        await kafka.close()


def _parse_place(given: list[str]) -> datetime | dict[int, int]:
    """Parse the values of `--to`: one time, or offsets such as `3:1200`, which are returned by partition."""
    try:
        if len(given) == 1 and "T" in given[0]:
            moment = datetime.fromisoformat(given[0])
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        pairs = [each.split(":") for each in given]
        places = {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        places = {}
    if not places:
        raise typer.BadParameter("--to needs a time such as 2026-11-15T12:00Z, or PARTITION:OFFSET such as 3:1200")
    return places


async def _topics(settings: Settings, *, create: bool) -> tuple[list[str], list[TopicReport]]:
    from tidegate.systems.snapshots.transports.opening import open_kafka

    kafka = open_kafka(settings.section(SnapshotSettings).kafka)
    try:
        made = await kafka.create_topics() if create else []
        return made, await kafka.topics()
    finally:
        await kafka.close()


def _line(topic: TopicReport, *, made: bool) -> str:
    if not topic.exists:
        return f"{topic.name}: missing. Create it with --create."
    shape = f"{counted(topic.partitions, 'partition')}, {counted(topic.replication, 'replica')}"
    return f"{topic.name}: {'created, ' if made else ''}{shape}, {'; '.join(topic.differences) or 'as specified'}"
