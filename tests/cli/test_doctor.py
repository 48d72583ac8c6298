"""What `tidegate doctor` finds beside the servers: free space, file permissions, credentials and upstreams."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.test_collect import simulator, token_of
from tests.cli.test_commands import tidegate
from tests.servers.migrated import migrated_folder
from tests.servers.ports import free_ports
from tidegate.app.cli import doctor_checks
from tidegate.app.cli.doctor_checks import database, installation, permissions
from tidegate.core.clock import ManualClock
from tidegate.core.findings import Finding
from tidegate.engine.collection import open_credentials
from tidegate.engine.credentials import KeySource
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.systems.github import doctor as github
from tidegate.systems.snapshots import doctor as snapshots


async def found(check: Callable[[Settings], AsyncIterator[Finding]], settings: Settings) -> dict[str, Finding]:
    return {finding.check: finding async for finding in check(settings)}


async def test_files_readable_by_others_are_reported_with_the_remedy(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    tmp_path.chmod(0o700)
    async with await Database.open(settings.effective_database_url):
        pass
    KeySource(tmp_path).make()
    assert {finding.verdict for finding in (await found(permissions, settings)).values()} == {"ok"}

    for exposed in ("tidegate.db", "credentials.key"):
        (tmp_path / exposed).chmod(0o644)
        files = (await found(permissions, settings))["files"]
        assert (files.verdict, files.found) == ("failed", f"other users can read {tmp_path / exposed} (644)")
        assert files.remedy == f"Run `chmod 600 {tmp_path / exposed}`"
        (tmp_path / exposed).chmod(0o600)

    tmp_path.chmod(0o755)
    folders = (await found(permissions, settings))["folders"]
    assert (folders.verdict, folders.remedy) == ("advice", f"Run `chmod 700 {tmp_path}`")


@pytest.mark.parametrize(("free", "verdict"), [(99, "failed"), (999, "advice"), (1000, "ok")])
async def test_free_space_is_reported_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, verdict: str
):
    monkeypatch.setattr(doctor_checks, "free_mb", lambda _folder: free)  # pyright: ignore[reportUnknownLambdaType]

    space = (await found(installation, Settings(data_dir=tmp_path)))["free space"]

    assert (space.verdict, space.found) == (verdict, f"{free:,} MB free in {tmp_path}")


async def test_a_configured_token_is_tested_and_its_upstream_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    async with simulator() as sim:
        settings = Settings.model_validate({"data_dir": tmp_path, "github": {"api_url": sim.url}})
        none = (await found(github.credentials, settings))["credentials"]
        assert (none.verdict, none.found) == ("advice", f"none for {sim.url}")
        assert "tidegate credentials add" in none.remedy
        assert await found(github.upstream, settings) == {}

        monkeypatch.setenv("GITHUB_TOKEN", token_of(sim))
        assert (await found(github.credentials, settings))["credentials"].found.startswith("GITHUB_TOKEN is valid")
        reached = (await found(github.upstream, settings))["upstream: github"]
        assert (reached.verdict, reached.found) == ("ok", f"{sim.url} accepts connections")

        monkeypatch.setenv("GITHUB_TOKEN", "ghp_0123456789abcdefghij0123456789abcdef")
        refused = (await found(github.credentials, settings))["credentials"]
        assert (refused.verdict, "401" in refused.found) == ("failed", True)


async def test_github_is_not_reached_for_credentials_of_another_upstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    async with simulator() as sim:
        settings = Settings.model_validate({"data_dir": tmp_path, "github": {"api_url": sim.url}})
        async with open_credentials(settings, "github") as credentials:
            await credentials.add_token(token_of(sim), owner="ada", name="ada")
        elsewhere = Settings.model_validate({"data_dir": tmp_path, "github": {"api_url": "http://127.0.0.1:9"}})

        assert "upstream: github" in await found(github.upstream, settings)
        assert await found(github.upstream, elsewhere) == {}


async def test_events_without_a_handler_are_reported_by_kind(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    await migrated_folder(tmp_path)
    clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))

    def write(tx: Transaction) -> None:
        kinds = {"left.out": ("a", "b"), "failing": ("c",), "behind": ("c",)}
        outbox.add(tx, *(Event(kind, key, payload={}) for kind, keys in kinds.items() for key in keys))
        (failing,) = (row for row in outbox.pending_page(tx) if row.kind == "failing")
        outbox.postpone(tx, failing.id, seen=0, not_before=tx.now, error="refused")

    async with await Database.open(settings.effective_database_url, clock=clock) as past:
        await past.transaction(write)
    async with await Database.open(settings.effective_database_url) as present:
        await present.transaction(outbox.add, Event("on.its.way", "d", payload={}))

    events = [each async for each in database(settings) if each.check.endswith("events")]

    assert [each.verdict for each in events] == ["advice"]
    assert events[0].found.startswith("2 event(s) of kind left.out pending since")
    assert "`systems`" in events[0].remedy


async def test_an_unreachable_upstream_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    settings = Settings.model_validate({"data_dir": tmp_path, "snapshots": {"game": {"url": url}}})

    game = (await found(snapshots.upstream, settings))["upstream: snapshots: character"]

    assert (game.verdict, game.found) == ("failed", f"{url} cannot be reached: Connection refused")


async def test_up_reports_every_invalid_setting_before_it_migrates(tmp_path: Path):
    (port,) = free_ports(1)
    ended = await tidegate(
        *(tmp_path, "up", "--port", "0"),
        TIDEGATE_LOG__LEVEL="error",
        TIDEGATE_SNAPSHOTS__KINDS='["no_such_module:Kind"]',
        TIDEGATE_CREDENTIALS_KEY="no key",
        TIDEGATE_DOCUMENTS__URL=f"mongodb://127.0.0.1:{port}/tidegate?serverSelectionTimeoutMS=100",
    )

    assert (ended.code, ended.out) == (1, "")
    head, *mistakes = ended.err.splitlines()
    assert head == "tidegate: 3 errors; the database was not migrated:"
    assert len(mistakes) == 3
    for text in ("no_such_module", "TIDEGATE_CREDENTIALS_KEY", f"127.0.0.1:{port}"):
        assert any(text in line for line in mistakes)
    database = sqlite3.connect(tmp_path / "data" / "tidegate.db")
    assert database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    database.close()
