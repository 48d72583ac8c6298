"""A redirect is the end of a call, and the next one waits for a permit of its own."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
from aiohttp import web

from tests.engine.conftest import Library
from tests.engine.shelf import HOST, ShelfUpstream
from tests.engine.upstream.servers import web_server
from tidegate.core.telemetry import metrics
from tidegate.engine.credentials.vault import RedirectCipher
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.settings import CollectSettings
from tidegate.engine.upstream import Answer, Permit, Request, UpstreamClient

SHELF, NEW = "/shelves/ada-novels/0", "/shelves/ada-novels/0?at=new"
STRANGER = "http://stranger.test/shelves/ada-novels/0"


def permits_of(library: Library) -> float:
    [family] = metrics.GATE_PERMITS.collect()
    gate = library.parts.unit.name
    return sum(each.value for each in family.samples if each.name.endswith("_total") and each.labels["gate"] == gate)


async def test_a_redirected_call_needs_a_permit_for_each_request(library: Library, upstream: ShelfUpstream):
    upstream.moved = {SHELF: "/shelves/elsewhere", "/shelves/elsewhere": NEW.partition("?")[0] + "/new"}
    before = permits_of(library)
    async with library.working():
        run = await library.ended()

    assert run.status is RunState.COMPLETED
    assert upstream.calls[SHELF + "/new"] == 1
    assert permits_of(library) - before == upstream.calls.total() == run.calls
    moved = next(job for job in await library.jobs(run.id) if job.resource_key == "shelf:ada-novels")
    assert (moved.status, moved.attempt_count, moved.fence) == (JobState.SUCCEEDED, 1, 3), "redirects are no attempts"
    assert len(moved.spec["redirects"]) == 2
    assert moved.page_key == "first", "it is the same job, so the next run finds its cursor"
    assert len(await library.items()) == 10


async def test_the_secret_is_not_sent_to_another_host(local: Library, upstream: ShelfUpstream):
    upstream.moved = {SHELF: STRANGER}
    async with local.working():
        run = await local.ended()

    assert run.status is RunState.COMPLETED
    assert (upstream.callers[SHELF], upstream.callers[STRANGER]) == (["token secret of librarian"], [""])
    following = upstream.callers["/shelves/ada-novels/1"]
    assert following == ["token secret of librarian"], "the next page is asked for where the source says"


async def test_a_redirect_loop_fails_the_job(local: Library, upstream: ShelfUpstream):
    upstream.moved = {SHELF: NEW, NEW: SHELF}
    soon = CollectSettings(first_pause=timedelta(milliseconds=1), longest_pause=timedelta(milliseconds=1))
    library = Library(local.parts, upstream, most_redirects=3, settings=soon)
    async with library.working():
        run = await library.ended()

    assert run.failed_jobs == 1
    [failed] = [job for job in await library.jobs(run.id) if job.status == JobState.FAILED]
    assert failed.last_error == "moved: redirected more than 3 times"
    assert upstream.calls[SHELF] + upstream.calls[NEW] == failed.max_attempts * 4
    assert "redirects" not in failed.spec, "each attempt begins at the address that the source names"


async def test_redirect_targets_are_stored_encrypted(local: Library, upstream: ShelfUpstream, tmp_path: Path):
    """A signed URL gives access without a credential."""
    upstream.moved = {SHELF: NEW + "&X-Amz-Signature=0123456789abcdef"}
    async with local.working():
        run = await local.ended()

    assert run.status is RunState.COMPLETED
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("local.db*"))
    assert b"redirects" in stored
    assert b"0123456789abcdef" not in stored


async def test_another_process_follows_a_redirect(library: Library, upstream: ShelfUpstream):
    """Any process that has the keys can decrypt the target; one without them begins with the first URL."""
    keys = [os.urandom(32)]

    async def derive(_purpose: str) -> list[bytes]:
        return keys

    first, second = RedirectCipher(derive), RedirectCipher(derive)
    assert await second.decrypt(await first.encrypt([HOST + SHELF, HOST + NEW])) == (HOST + SHELF, HOST + NEW)
    keys.insert(0, os.urandom(32))
    hidden = await first.encrypt([HOST + NEW])
    assert await second.decrypt(hidden) == (HOST + NEW,), "with the second key"
    assert await RedirectCipher().decrypt(hidden) == ()
    assert await second.decrypt(["not encrypted"]) == ()


async def test_a_job_whose_target_cannot_be_decrypted_begins_again(local: Library, upstream: ShelfUpstream):
    upstream.moved = {SHELF: NEW}
    library = Library(local.parts, upstream, redirects=_Forgetful(3))
    async with library.working():
        run = await library.ended()

    assert run.status is RunState.COMPLETED
    assert (upstream.calls[SHELF], upstream.calls[NEW]) == (4, 1)


async def test_a_retry_begins_with_the_url_of_the_source(local: Library, upstream: ShelfUpstream):
    """The URL of a redirect may be valid for a short time only."""
    upstream.moved = {SHELF: NEW}
    upstream.trouble[NEW] = [500, 429, 200]
    async with local.working():
        run = await local.ended()

    assert run.status is RunState.COMPLETED
    assert (upstream.calls[SHELF], upstream.calls[NEW]) == (3, 3)
    assert len(await local.items()) == 10


async def test_a_redirect_to_a_private_address_fails_the_job_immediately(local: Library):
    """The calls go out over real connections; the stranger listens on this machine."""
    asked, left = list[str](), {"x-remaining": "100"}

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path == SHELF:
            away = {"Location": f"http://localhost:{request.url.port}/private"}
            return web.Response(status=301, headers=left | away)
        if request.path.startswith("/users/"):
            return web.json_response({"shelves": ["ada-novels"]}, headers=left)
        return web.json_response({"items": [], "more": False}, headers=left)

    async with web_server(answer) as url, UpstreamClient() as client:
        library = Library(local.parts, _At(client, url))
        async with library.working():
            run = await library.ended()

    [failed] = [job for job in await library.jobs(run.id) if job.status == JobState.FAILED]
    assert "upstream.private_hosts" in failed.last_error
    assert (failed.attempt_count, asked.count(SHELF), asked.count("/private")) == (1, 1, 0)


class _Forgetful(RedirectCipher):
    """Cannot decrypt what it encrypted, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    async def decrypt(self, texts: Sequence[str]) -> tuple[str, ...]:
        if texts and self._times:
            self._times -= 1
            return ()
        return await super().decrypt(texts)


class _At(ShelfUpstream):
    """Sends the requests of the shelf to a server that runs."""

    def __init__(self, client: UpstreamClient, url: str) -> None:
        super().__init__({})
        self._client, self._url = client, url

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        there = msgspec.structs.replace(request, url=request.url.replace(HOST, self._url))
        return await self._client.fetch(there, permit)
