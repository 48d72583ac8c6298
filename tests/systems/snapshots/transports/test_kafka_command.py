"""`tidegate snapshots topics`, on a real broker."""

import asyncio
import json
from collections.abc import Callable, Generator

import pytest
from typer.testing import CliRunner, Result

from tests.servers.kafka import broker
from tidegate.app.cli import app
from tidegate.core.telemetry.logs import configure_logs

Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def log_as_before() -> Generator[None]:
    yield
    configure_logs(level="warning")  # the command had the log written to where the runner listened


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Generator[Command]:
    server = broker()
    settings = server.settings()
    environment = {"SERVERS": settings.servers, "REPLICATION": "1", "PREFIX": settings.prefix}
    monkeypatch.setenv("TIDEGATE_SNAPSHOTS__TRANSPORT", "kafka")
    for name, value in environment.items():
        monkeypatch.setenv(f"TIDEGATE_SNAPSHOTS__KAFKA__{name}", value)
    yield lambda *arguments: CliRunner().invoke(app, ["snapshots", "topics", *arguments])
    asyncio.run(server.forget(settings))


def test_topics_are_shown_created_and_shown_again(topics: Command):
    missing = topics()
    assert missing.exit_code == 1
    assert missing.output.count("missing. Create it with --create.") == 4

    made = topics("--create")
    assert made.exit_code == 0, made.output
    assert "update-priority-high: created, 24 partitions, 1 replica, as specified" in made.output

    nothing = topics("--set-back", "update-priority-high", "--to", "2026-11-15T12:00Z")
    assert nothing.exit_code == 0, nothing.output
    assert "high-worker continues in 24 partitions of update-priority-high; 0 events in all wait" in nothing.output
    place = topics("--set-back", "update-priority-low", "--to", "3:0", "--json")
    assert json.loads(place.output)["places"] == {"3": 0}
    for wrong in (["--to", "3:0"], ["--set-back", "update-dlq", "--to", "3:0"], ["--set-back", "update-priority-low"]):
        assert topics(*wrong).exit_code == 2
    assert "PARTITION:OFFSET" in topics("--set-back", "update-priority-low", "--to", "noon").output

    again = topics("--create", "--json")
    assert again.exit_code == 0
    assert [(each["partitions"], each["made"], each["differences"]) for each in json.loads(again.output)] == [
        (24, False, []),
        (24, False, []),
        (12, False, []),
        (1, False, []),
    ]


def test_with_redis_streams_there_are_no_topics_to_create(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TIDEGATE_SNAPSHOTS__TRANSPORT", raising=False)
    ended = CliRunner().invoke(app, ["snapshots", "topics", "--create"])
    assert ended.exit_code == 0
    assert "need no topics" in ended.output
    refused = CliRunner().invoke(app, ["snapshots", "topics", "--set-back", "update-priority-low", "--to", "3:0"])
    assert refused.exit_code == 2
    assert "only Kafka keeps processed events" in refused.output
