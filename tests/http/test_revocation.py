"""Sessions are listed and revoked: one, those of a key, or all; in every process, from the next request on."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.cli.test_commands import tidegate
from tests.http.asgi import ask
from tests.http.serving import Reply
from tests.http.test_sessions import OPERATE, READ, application, bearer, log_in, settings_of
from tests.servers.migrated import migrated_file
from tidegate.core.clock import ManualClock
from tidegate.core.errors import DatabaseUnavailable
from tidegate.http.access import Access
from tidegate.http.asgi import Application
from tidegate.http.session_store import http_sessions, revoked_sessions
from tidegate.storage.sql import Database

Browser = dict[str, str]
COUNTS = select(
    select(func.count()).select_from(http_sessions).scalar_subquery(),
    select(func.count()).select_from(revoked_sessions).scalar_subquery(),
)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Database]:
    async with await Database.open(await migrated_file(tmp_path / "sessions.db")) as opened:
        yield opened


def process(database: Database) -> Application:
    settings = settings_of()
    return application(settings, Access(settings, database=database))


async def logged_in(app: Application, key: str = OPERATE) -> Browser:
    answer, cookie = await log_in(key, app)
    return cookie | {"x-tidegate-csrf": answer.json["csrf"]}


async def look(app: Application, browser: Browser) -> int:
    return (await ask(app, "GET", "/v1/thing", browser)).status


async def manage(app: Application, method: str = "GET", path: str = "/v1/sessions", key: str = OPERATE) -> Reply:
    return await ask(app, method, path, bearer(key))


async def test_a_revoked_session_ends_in_every_process_immediately(database: Database):
    one, other = process(database), process(database)
    stolen, kept = await logged_in(one), await logged_in(one, READ)
    assert [await look(other, each) for each in (stolen, kept)] == [200, 200]

    listed = (await manage(one)).json["sessions"]
    assert sorted(each["role"] for each in listed) == ["operate", "read"]
    assert {each["address"] for each in listed} == {"192.0.2.1"}
    [session] = [each["id"] for each in listed if each["role"] == "operate"]
    assert (await manage(other, "DELETE", f"/v1/sessions/{session}")).json == {"revoked": session}

    for app in (one, other):
        refused = await ask(app, "GET", "/v1/thing", stolen)
        assert (refused.status, "revoked" in refused.json["detail"]) == (401, True)
        assert (await ask(app, "POST", "/v1/thing", stolen, {})).status == 401
        assert (await ask(app, "GET", "/v1/session", stolen)).status == 401
        assert await look(app, kept) == 200
    assert [each["role"] for each in (await manage(one)).json["sessions"]] == ["read"]


async def test_all_sessions_of_a_key_or_all_sessions_are_revoked_and_later_ones_are_valid(database: Database):
    app = process(database)
    operator, reader = await logged_in(app), await logged_in(app, READ)
    [key_id] = [each["key_id"] for each in (await manage(app)).json["sessions"] if each["role"] == "read"]

    await manage(app, "DELETE", f"/v1/sessions/{key_id}")
    assert [await look(app, each) for each in (operator, reader)] == [200, 401]
    assert (await manage(app, "DELETE", key=READ)).status == 403
    await manage(app, "DELETE")
    assert await look(app, operator) == 401
    assert (await manage(app)).json == {"sessions": []}


async def test_a_login_after_a_revocation_creates_a_valid_session(tmp_path: Path):
    clock, settings = ManualClock(), settings_of()
    async with await Database.open(await migrated_file(tmp_path / "s.db"), clock=clock) as database:
        app = application(settings, Access(settings, database=database, clock=clock))
        before = await logged_in(app)
        await manage(app, "DELETE")
        clock.advance(timedelta(seconds=1))
        after = await logged_in(app)

        assert [await look(app, each) for each in (before, after)] == [401, 200]
        assert len((await manage(app)).json["sessions"]) == 1
        clock.advance(timedelta(days=1))
        await logged_in(app)
        await manage(app, "DELETE")
        assert await database.read(lambda tx: tx.execute(COUNTS).one()) == (1, 1), "rows end with their sessions"


async def test_a_copied_cookie_is_invalid_after_logout(database: Database):
    app = process(database)
    browser = await logged_in(app)

    assert (await ask(app, "DELETE", "/v1/session", browser)).status == 200

    assert await look(app, browser) == 401


async def test_during_a_database_outage_a_session_is_read_only(database: Database, monkeypatch: pytest.MonkeyPatch):
    app = process(database)
    browser, revoked = await logged_in(app), await logged_in(app, READ)
    assert await look(app, revoked) == 200
    [session] = [each["id"] for each in (await manage(app)).json["sessions"] if each["role"] == "read"]
    await manage(app, "DELETE", f"/v1/sessions/{session}")
    assert await look(app, revoked) == 401

    async def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("it is away")

    with monkeypatch.context() as patched:
        patched.setattr(database, "read", away)
        patched.setattr(database, "transaction", away)
        assert await look(app, browser) == 200
        assert await look(app, revoked) == 401, "this process knows that it was revoked"
        assert (await ask(app, "POST", "/v1/thing", browser, {})).status == 503
        assert (await log_in(OPERATE, app))[0].status == 200
        assert (await ask(app, "DELETE", "/v1/session", browser)).status in (200, 503)
    assert (await ask(app, "POST", "/v1/thing", browser, {})).status == 200


async def test_the_command_lists_and_revokes_sessions(tmp_path: Path):
    file = tmp_path / "shared.db"
    url = await migrated_file(file)
    async with await Database.open(url) as database:
        app = process(database)
        browser = await logged_in(app)
        listed = await tidegate(tmp_path, "sessions", "list", TIDEGATE_DATABASE_URL=url)
        refused = await tidegate(tmp_path, "sessions", "revoke", TIDEGATE_DATABASE_URL=url)
        revoked = await tidegate(tmp_path, "sessions", "revoke", "--all", TIDEGATE_DATABASE_URL=url)

        assert "from 192.0.2.1" in listed.out
        assert (refused.code, "--all" in refused.err) == (1, True)
        assert "0 sessions still open" in revoked.out
        assert await look(app, browser) == 401
