"""The list of subjects over HTTP, in pages and with a search."""

import pytest

from tests.http.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_subjects_are_listed_with_their_runs_and_due_times(deployment: Served):
    client, [first, second, *_] = deployment.client, sorted(deployment.logins[5:9])
    ended = await deployment.collect(first)
    added = await client.post("/v1/schedules", {"login": second, "cron": "0 3 * * *"})

    one = (await client.get(f"/v1/subjects?search={first}")).json["subjects"][0]
    assert (one["source"], one["id"], one["last_run"]["id"]) == ("github", first, ended["id"])
    assert (one["last_run"]["status"], one["last_completed_at"]) == ("completed", ended["completed_at"])
    assert one["documents"] >= ended["documents"] > 0
    other = (await client.get(f"/v1/subjects?search={second}")).json["subjects"][0]
    assert (other["schedules"], other["next_at"]) == (1, added.json["next_at"])

    path, seen = "/v1/subjects?limit=1", list[str]()
    while path is not None:
        page = (await client.get(path)).json
        seen += [each["id"] for each in page["subjects"]]
        path = page["next"]
    assert seen == sorted(set(seen))
    assert {first, second} <= set(seen)
    assert (await client.get("/v1/subjects?search=%20")).status == 422
