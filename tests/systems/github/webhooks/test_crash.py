"""The receiver ends between two steps: nothing that was answered is lost, and nothing is applied twice."""

from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.cli.test_collect import simulator, token_of
from tests.http.processes import started
from tests.systems.github.deployment import SECRET
from tests.systems.github.webhooks.deployment import WebhookDeployment, webhook_deployment
from tests.waiting import random_moment, until
from tidegate.storage.documents import SqlDocuments, Staged, Written
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.systems.github.webhooks import deliveries
from tidegate.systems.github.webhooks.deliveries import github_deliveries


class Died(Exception):
    """Stands for the end of the process inside a transaction."""


class _Dying:
    """Writes documents and ends before the commit, the first few times."""

    def __init__(self, staged: Staged, left: list[int]) -> None:
        self._staged, self._left = staged, left

    def apply(self, tx: Transaction) -> Written:
        written = self._staged.apply(tx)
        if self._left:
            self._left.pop()
            raise Died
        return written


async def _events(it: WebhookDeployment) -> list[Event]:
    rows = await it.deployment.parts.database.read(outbox.pending_page)
    return [row.event() for row in rows]


async def test_a_delivery_whose_response_was_lost_is_applied_and_its_repetition_is_a_duplicate(
    tmp_path: Path, embedded_url: str
):
    async with webhook_deployment(tmp_path, embedded_url) as it:
        it.sim.mutate.open_issue(it.repository.full_name)
        await it.applied()
        [*_, delivery] = it.sim.webhooks.deliveries
        it.sim.webhooks.redeliver(delivery.id)
        await it.applied()
        assert [attempt.status for attempt in delivery.attempts] == [202, 202]
        rows = await it.deployment.parts.database.read(partial(deliveries.recent, limit=10))
        assert [row.documents for row in rows] == [1]


async def test_documents_and_the_delivery_record_are_committed_together_or_not_at_all(
    tmp_path: Path, embedded_url: str, monkeypatch: pytest.MonkeyPatch
):
    async with webhook_deployment(tmp_path, embedded_url) as it:
        left, apply = [1, 1], deliveries.apply

        def dying(tx: Transaction, delivery_id: str, staged: Staged) -> Written | None:
            return apply(tx, delivery_id, _Dying(staged, left))

        monkeypatch.setattr(deliveries, "apply", dying)
        it.sim.mutate.open_issue(it.repository.full_name)
        await it.applied()
        assert left == []
        assert len(await it.deployment.bodies("issue")) == 1
        rows = await it.deployment.parts.database.read(partial(deliveries.recent, limit=10))
        assert [row.documents for row in rows] == [1]


async def test_an_event_redelivered_after_it_was_applied_changes_nothing(tmp_path: Path, embedded_url: str):
    async with webhook_deployment(tmp_path, embedded_url) as it:
        number = it.sim.mutate.open_issue(it.repository.full_name)
        await it.applied()
        [*_, first] = it.sim.webhooks.deliveries
        it.sim.mutate.close(it.repository.full_name, number)
        await it.applied()
        [before] = (await it.deployment.bodies("issue")).values()
        await it.deployment.webhooks.apply(Event(deliveries.EVENT, "github:1", first.id))
        assert list((await it.deployment.bodies("issue")).values()) == [before]
        assert before["state"] == "closed"
        assert await _events(it) == []


@pytest.mark.crash
async def test_a_receiver_killed_at_any_time_loses_and_repeats_nothing(tmp_path: Path):
    """Deliveries that were answered with 202 are never sent again; the others are, once the receiver is back."""
    async with simulator() as sim:
        account = sim.world.require_account(sim.world.logins()[0])
        repository = next(each for each in sim.world.repositories_of(account) if each.has_issues)
        variables = {
            "TIDEGATE_GITHUB__API_URL": sim.url,
            "TIDEGATE_GITHUB_WEBHOOKS__SECRETS": f'["{SECRET}"]',
            "GITHUB_TOKEN": token_of(sim),
        }
        opened = set[int]()
        for _ in range(4):
            async with started(tmp_path, "serve", "--only", "github_webhooks", "--port", "0", **variables) as server:
                sim.webhooks.hooks.clear()
                hook = sim.webhooks.register(f"{server.url}/v1/github/webhook", SECRET)
                for delivery in sim.webhooks.deliveries:
                    delivery.hook = hook
                sim.webhooks.redeliver()
                opened |= {sim.mutate.open_issue(repository.full_name) for _ in range(40)}
                await random_moment(0.6)
                server.process.kill()
                await server.process.communicate()
                await sim.webhooks.settled()
        async with started(tmp_path, "serve", "--only", "github_webhooks", "--port", "0", **variables) as server:
            hook = sim.webhooks.register(f"{server.url}/v1/github/webhook", SECRET)
            for delivery in sim.webhooks.deliveries:
                delivery.hook = hook
            sim.webhooks.redeliver()
            await sim.webhooks.settled()
            assert all(each.is_delivered for each in sim.webhooks.deliveries)
            await _assert_all_applied(tmp_path, opened)


async def _assert_all_applied(folder: Path, opened: set[int]) -> None:
    found = list(folder.rglob("tidegate.db"))
    async with await Database.open(f"sqlite:///{found[0]}") as database:
        await until(lambda: database.read(_is_applied))
        bodies = [each.body async for each in SqlDocuments(database).of("github").iterate("issue")]
        assert sorted(body["number"] for body in bodies) == sorted(opened)
        rows = await database.read(partial(deliveries.recent, limit=1000))
        assert [row.documents for row in rows if row.event == "issues"] == [1] * len(opened), "each was applied once"


def _is_applied(tx: Transaction) -> bool:
    those = select(func.count()).select_from(github_deliveries).where(github_deliveries.c.applied_at.is_(None))
    return tx.execute(those).scalar_one() == 0
