"""Subjects in requests have the form of their source: GitHub's rules do not apply to others."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

import pytest

from tests.http.serving import served
from tidegate.core.errors import InvalidArgument
from tidegate.engine import runs
from tidegate.engine.runs import NewRun
from tidegate.engine.source import JobSpec, Reading, Subject, Task
from tidegate.engine.source_plugin import OwnSourcePlugin
from tidegate.engine.upstream import Answer, Request


class WeatherSource:
    """Its subjects are places, such as `de/berlin`; a run is stored under the number of the place."""

    name = "weather"
    planning_kinds = frozenset[str]()
    places: ClassVar = {"de/berlin": "2950159", "kr/seoul.city": "1835848"}

    def subject(self, text: str) -> Subject:
        place = text.strip().lower()
        if place not in self.places:
            raise InvalidArgument("subject", text, "must be a place, such as de/berlin")
        return Subject(user_id=self.places[place], login=place)

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        return [JobSpec(kind="WEATHER", resource=subject.user_id)]

    def request(self, task: Task, secret: str) -> Request:
        raise NotImplementedError

    def read(self, task: Task, answer: Answer) -> Reading:
        raise NotImplementedError


@pytest.mark.parametrize("written", ["DE/Berlin", "kr/seoul.city"])
async def test_runs_and_schedules_are_found_by_every_notation_of_their_subject(written: str, tmp_path: Path):
    source = WeatherSource()
    subject = source.subject(written)
    async with AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(served(tmp_path, works=False, has_token=False))
        client, collection = deployment.client, deployment.collection
        await stack.enter_async_context(collection.open_source(OwnSourcePlugin(collection.parts.settings, source)))
        new = NewRun("weather", subject, "weather", "manual", list(source.first_jobs(subject)))
        run_id = (await collection.parts.database.transaction(runs.begin, new))[0]
        scheduled = await client.post("/v1/schedules", {"login": written, "source": "weather", "cron": "0 3 * * *"})
        assert scheduled.status == 201, scheduled

        for path, mine in (("runs", run_id), ("schedules", scheduled.json["id"])):

            async def ids(query: str, path: str = path) -> list[int]:
                answer = await client.get(f"/v1/{path}?{query}")
                assert answer.status == 200, answer
                return [each["id"] for each in answer.json[path]]

            assert await ids(f"source=weather&login={written}") == [mine]
            assert await ids("source=weather") == [mine]
            assert await ids("source=github") == []
            refused = await client.get(f"/v1/{path}?source=weather&login=octocat")
            assert (refused.status, refused.json["field"]) == (422, "login")
            assert "such as de/berlin" in refused.json["detail"]
            unknown = await client.get(f"/v1/{path}?source=unknown&login=octocat")
            assert (unknown.status, unknown.json["field"]) == (422, "source")
