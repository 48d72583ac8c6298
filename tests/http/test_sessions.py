"""Sessions: a key becomes a cookie, which cannot be made up, altered, kept too long, or used by other pages."""

import asyncio
import base64
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from litestar.datastructures import Headers
from litestar.response import Stream
from pydantic import SecretStr

from tests.http.asgi import ask
from tests.http.serving import Reply
from tests.http.test_problems import log_lines
from tests.waiting import patience
from tidegate.core.clock import ManualClock
from tidegate.http.access import Access
from tidegate.http.application import build_application
from tidegate.http.asgi import Application
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import AuthenticationMethod, HttpCaller, Keyring, Role
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import RequestFailed
from tidegate.http.routes import route
from tidegate.http.session_routes import SessionRoutes
from tidegate.http.sessions import SessionManager
from tidegate.http.settings import HttpSettings

OPERATE, READ, OTHER = "operate-0123456789abcdef", "read-0123456789abcdef", "other-0123456789abcdef"
LASTS = timedelta(hours=12)
COOKIE, SECURE = "tidegate_session", "__Host-tidegate_session"
ADDRESS = "/v1/session"


def settings_of(operate: str | None = OPERATE, read: str | None = READ, **more: Any) -> HttpSettings:
    given = {"api_key": operate and SecretStr(operate), "read_keys": () if read is None else (SecretStr(read),)}
    return HttpSettings.model_validate(given | more)


class Word(RequestInput, frozen=True, kw_only=True):
    """Something to say."""

    text: str = ""


async def look() -> Word:
    """Look at something."""
    return Word(text="seen")


async def act(body: Word) -> Word:
    """Do something."""
    return body


def application(settings: HttpSettings | None = None, access: Access | None = None) -> Application:
    settings = settings or settings_of()
    access = access or Access(settings)
    ours = [route("GET", "/v1/thing", look, "x"), route("POST", "/v1/thing", act, "x")]
    return build_application([*SessionRoutes(access).routes(), *ours], settings, access=access)


APP = application()


async def log_in(key: str = OPERATE, app: Application = APP, **options: Any) -> tuple[Reply, dict[str, str]]:
    """The answer, and what the browser sends from then on."""
    answer = await ask(app, "POST", ADDRESS, body={"key": key}, **options)
    assert answer.status == 200, answer
    return answer, {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(("key", "role"), [(OPERATE, "operate"), (READ, "read")])
async def test_a_key_is_exchanged_for_a_session_of_its_role(key: str, role: str):
    answer, cookie = await log_in(key)
    shown = await ask(APP, "GET", ADDRESS, cookie)

    assert answer.json == shown.json
    assert (answer.json["role"], answer.json["needs_key"]) == (role, True)
    assert abs(datetime.fromisoformat(answer.json["expires_at"]) - datetime.now(UTC) - LASTS) < timedelta(minutes=1)
    assert key not in str(answer.headers)
    assert (await ask(APP, "GET", "/v1/thing", cookie)).json == {"text": "seen"}


async def test_the_cookie_is_http_only_and_limited_to_this_site():
    plain, _ = await log_in()
    secure, _ = await log_in(headers={"x-forwarded-proto": "https"})
    direct, _ = await log_in(scheme="https")

    assert re.fullmatch(
        rf"{COOKIE}=[\w.-]+; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", plain.headers["set-cookie"]
    )
    for each in (secure, direct):
        assert re.fullmatch(
            rf"{SECURE}=[\w.-]+; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure", each.headers["set-cookie"]
        )


async def test_over_tls_only_the_cookie_with_the_host_prefix_is_accepted():
    _, cookie = await log_in(scheme="https")

    assert (await ask(APP, "GET", "/v1/thing", cookie, scheme="https")).status == 200
    assert (await ask(APP, "GET", "/v1/thing", cookie)).status == 401
    renamed = {"cookie": cookie["cookie"].removeprefix("__Host-")}
    assert (await ask(APP, "GET", "/v1/thing", renamed, scheme="https")).status == 401


async def test_two_session_cookies_are_refused():
    """One of them was set by somebody else, and nobody knows which."""
    first, second = (await log_in())[1]["cookie"], (await log_in(READ))[1]["cookie"]

    assert (await ask(APP, "GET", "/v1/thing", {"cookie": f"a=b; {first}; c=d"})).status == 200
    assert (await ask(APP, "GET", "/v1/thing", {"cookie": f"{first}; {second}"})).status == 401


@pytest.mark.parametrize("key", ["", OPERATE[:-1], OPERATE + "x", OPERATE.upper(), " " + OPERATE, "ключ" * 5])
async def test_a_wrong_key_gets_no_session(key: str):
    app = application()
    answer = await ask(app, "POST", ADDRESS, body={"key": key})

    assert (answer.status, answer.problem) == ((401, "key-needed") if key else (422, "invalid"))
    assert "set-cookie" not in answer.headers
    assert not key or key.encode() not in answer.body


async def test_requests_without_a_valid_key_or_session_are_refused_with_the_reason():
    nobody = await ask(APP, "GET", ADDRESS)
    unknown_caller = await ask(APP, "GET", ADDRESS, bearer(OTHER))
    late = await ask(APP, "GET", ADDRESS, {"cookie": f"{COOKIE}=x.y"})

    assert {(each.status, each.problem) for each in (nobody, unknown_caller, late)} == {(401, "key-needed")}
    assert [each.json["detail"] for each in (nobody, unknown_caller, late)] == [
        "the request has neither a key nor a session",
        "the key is not known",
        "the session has expired or is not valid; log in again",
    ]


async def test_a_caller_with_a_key_gets_its_role_and_needs_no_session():
    for key, role in ((OPERATE, "operate"), (READ, "read")):
        shown = await ask(APP, "GET", ADDRESS, bearer(key))
        assert shown.json == {"role": role, "needs_key": True, "csrf": None, "expires_at": None}


async def test_a_key_takes_precedence_over_a_session():
    """A wrong one too: a request with a key does not use the session of the browser."""
    _, cookie = await log_in(OPERATE)

    assert (await ask(APP, "GET", "/v1/thing", cookie | bearer(OTHER))).status == 401
    assert (await ask(APP, "GET", ADDRESS, cookie | bearer(READ))).json["role"] == "read"


async def test_a_basic_authorization_header_of_a_proxy_is_ignored():
    _, cookie = await log_in()

    assert (await ask(APP, "GET", "/v1/thing", cookie | {"authorization": "Basic YTpi"})).status == 200
    assert (await ask(APP, "GET", "/v1/thing", {"authorization": f"Basic {OPERATE}"})).status == 401


async def test_without_keys_every_local_caller_is_an_operator():
    app = application(settings_of(None, None))
    free = {"role": "operate", "needs_key": False, "csrf": None, "expires_at": None}

    assert (await ask(app, "GET", ADDRESS)).json == free
    logged_in = await ask(app, "POST", ADDRESS, body={"key": "anything"})
    assert logged_in.json == free
    assert "set-cookie" not in logged_in.headers
    assert (await ask(app, "POST", "/v1/thing", body={"text": "x"})).status == 200


async def test_a_logout_deletes_the_cookie():
    answer, cookie = await log_in()
    csrf = {"x-tidegate-csrf": answer.json["csrf"]}

    refused = await ask(APP, "DELETE", ADDRESS, cookie)
    ended = await ask(APP, "DELETE", ADDRESS, cookie | csrf)
    again = await ask(APP, "DELETE", ADDRESS)

    assert (refused.status, refused.problem) == (403, "csrf-needed")
    for each in (ended, again):
        assert (each.status, each.json) == (200, {"logged_out": True})
        assert each.headers["set-cookie"] == f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


async def test_with_a_session_only_the_own_page_can_act():
    answer, cookie = await log_in()
    other, _ = await log_in()
    body = {"text": "x"}

    async def acting(headers: dict[str, str]) -> tuple[int, str | None]:
        told = await ask(APP, "POST", "/v1/thing", cookie | headers, body)
        return told.status, None if told.status == 200 else told.problem

    right = {"x-tidegate-csrf": answer.json["csrf"]}
    assert await acting(right) == (200, None)
    assert await acting(right | {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}) == (200, None)
    for wrong in ("", "x", other.json["csrf"], answer.json["csrf"][:-1], answer.json["csrf"] + "x", "\xff"):
        assert await acting({"x-tidegate-csrf": wrong}) == (403, "csrf-needed")
    assert await acting({}) == (403, "csrf-needed")
    assert await acting(right | {"origin": "http://127.0.0.1:9"}) == (403, "foreign-origin")
    assert await acting(right | {"sec-fetch-site": "same-site"}) == (403, "foreign-origin")
    assert await acting(bearer(OPERATE)) == (200, None), "whoever sends a key is no browser that was tricked"


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
async def test_a_session_is_not_accepted_from_other_pages_even_for_reading(site: str):
    """To a browser another port of this host is the same site: it sends the cookie."""
    _, cookie = await log_in()
    asked = cookie | {"sec-fetch-site": site}

    assert (await ask(APP, "GET", "/v1/thing", asked)).status == 401
    assert (await ask(APP, "GET", "/v1/thing", cookie | {"sec-fetch-site": "same-origin"})).status == 200


async def test_a_read_only_session_cannot_act():
    answer, cookie = await log_in(READ)
    acted = await ask(APP, "POST", "/v1/thing", cookie | {"x-tidegate-csrf": answer.json["csrf"]}, {"text": "x"})

    assert (acted.status, acted.problem) == (403, "role-needed")
    assert "the role operate" in acted.json["detail"]


async def listen() -> Stream:
    """Tell nothing, for ever."""

    async def silence() -> AsyncGenerator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    return Stream(silence())


async def test_a_stream_ends_with_the_session_of_its_client():
    settings = settings_of(session_lasts=timedelta(minutes=1))
    app = build_application([route("GET", "/v1/stream", listen, "x")], settings)
    # On a slow machine a short session is over before its request is read; then a longer one is tried.
    for left_s in (0.2, 1, 5, 25):
        began = ManualClock(datetime.now(UTC) + timedelta(seconds=left_s) - timedelta(minutes=1))
        cookie = {"cookie": f"{COOKIE}={opened(clock=began, settings=settings)}"}
        async with patience():
            answer = await ask(app, "GET", "/v1/stream", cookie)
        if answer.status == 200:
            break

    assert (answer.status, answer.body) == (200, b"begun")
    assert (await ask(app, "GET", "/v1/stream", cookie)).status == 401


def office(settings: HttpSettings | None = None, clock: ManualClock | None = None) -> SessionManager:
    settings = settings or settings_of()
    return SessionManager(Keyring(settings), settings.session_lasts, clock)


def opened(key: str = OPERATE, clock: ManualClock | None = None, settings: HttpSettings | None = None) -> str:
    known = Keyring(settings_of()).find(key)
    assert known is not None
    return office(settings, clock).open(known)[0]


def test_every_process_with_the_same_keys_in_any_order_accepts_the_session():
    moved = HttpSettings(api_keys=(SecretStr(OTHER), SecretStr(OPERATE)), read_keys=(SecretStr(READ),))

    for key, role in ((OPERATE, Role.OPERATE), (READ, Role.READ)):
        caller = office(moved).read(opened(key))
        assert caller is not None
        assert (caller.role, caller.how) == (role, AuthenticationMethod.SESSION)


def test_removing_a_key_ends_its_sessions():
    token = opened(OPERATE)

    assert office(settings_of(OTHER, READ)).read(token) is None
    assert office(settings_of(None, None)).read(token) is None
    assert office(settings_of(OPERATE, None)).read(token) is not None


def test_a_session_has_the_current_role_of_its_key():
    caller = office(HttpSettings(read_keys=(SecretStr(OPERATE),))).read(opened(OPERATE))

    assert caller is not None
    assert caller.role is Role.READ


def test_a_session_ends_at_its_expiry_and_at_a_shorter_configured_one():
    clock = ManualClock()
    token, mine, shorter = opened(clock=clock), office(clock=clock), settings_of(session_lasts=timedelta(hours=1))
    clock.advance(timedelta(hours=1) - timedelta(milliseconds=1))
    assert mine.read(token) is not None
    assert office(shorter, clock).read(token) is not None
    clock.advance(timedelta(milliseconds=1))
    assert office(shorter, clock).read(token) is None
    clock.advance(LASTS - timedelta(hours=1) - timedelta(milliseconds=1))
    assert mine.read(token) is not None
    clock.advance(timedelta(milliseconds=1))
    assert mine.read(token) is None, "to the millisecond"


def test_a_session_from_the_future_is_refused_beyond_a_small_clock_difference():
    behind, ahead = ManualClock(), ManualClock()
    ahead.advance(timedelta(seconds=59))
    assert office(clock=behind).read(opened(clock=ahead)) is not None
    ahead.advance(timedelta(seconds=2))
    assert office(clock=behind).read(opened(clock=ahead)) is None


async def test_the_expiry_of_a_session_is_checked_at_each_request():
    clock = ManualClock()
    authenticator = Authenticator(Access(settings_of(), clock=clock), ())
    headers = Headers({"host": "127.0.0.1", "cookie": f"{COOKIE}={opened(READ, clock)}"})

    assert (await authenticator.admit("GET", "/v1/runs", headers)).role is Role.READ
    clock.advance(LASTS)
    with pytest.raises(RequestFailed, match="log in again"):
        await authenticator.admit("GET", "/v1/runs", headers)


def spelled(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


TOKEN = opened()
BODY, SIGNATURE = TOKEN.split(".")
SAID: list[Any] = msgspec.json.decode(base64.urlsafe_b64decode(BODY + "=="))
READER = Keyring(settings_of()).find(READ)


CSRF = getattr(office().read(TOKEN), "csrf", "")
"""Signed with the same secret, for something else."""


def altered(at: int, sign: str) -> str:
    return TOKEN[:at] + sign + TOKEN[at + 1 :]


def saying(said: bytes) -> str:
    return f"{spelled(said)}.{SIGNATURE}"


def signed(signature: bytes) -> str:
    return f"{BODY}.{spelled(signature)}"


def with_another(at: int, value: object) -> str:
    return saying(msgspec.json.encode([*SAID[:at], value, *SAID[at + 1 :]]))


@given(
    st.one_of(
        st.text(max_size=80),
        st.builds(altered, st.integers(0, len(TOKEN)), st.text(max_size=2)),
        st.builds(saying, st.binary(max_size=80)),
        st.builds(signed, st.binary(max_size=40)),
        st.builds(with_another, st.integers(0, 3), st.text(max_size=20) | st.integers(-(2**60), 2**60) | st.none()),
    )
)
@example(f"{BODY}.{CSRF}")
@example(TOKEN + "=")
@example(f"{BODY}.")
@example(BODY)
@example(f".{SIGNATURE}")
@example(TOKEN + "." + SIGNATURE)
@example(with_another(0, READER.id if READER else ""))
@example(saying(b"[" * 300))
@example("x" * 100_000)
def test_a_forged_session_is_refused(forged: str):
    assert forged == TOKEN or office().read(forged) is None


def test_the_csrf_token_differs_from_the_cookie():
    """A script reads the one; the other is not for scripts."""
    assert CSRF
    assert CSRF not in TOKEN


def test_sessions_are_unique_and_do_not_contain_their_key():
    tokens = [opened() for _ in range(20)]

    assert len(set(tokens)) == 20
    told = base64.urlsafe_b64decode(tokens[0].split(".")[0] + "==")
    assert OPERATE.encode() not in told
    caller = office().read(tokens[0])
    assert caller is not None
    assert str(caller.csrf) not in repr(caller)


async def test_actions_are_logged_with_their_caller_and_without_secrets():
    with log_lines() as lines:
        answer, cookie = await log_in()
        csrf = {"x-tidegate-csrf": answer.json["csrf"]}
        by_session = await ask(APP, "POST", "/v1/thing", cookie | csrf, {"text": "x"})
        by_key = await ask(APP, "POST", "/v1/thing", bearer(OPERATE), {"text": "x"})
        await ask(APP, "POST", "/v1/thing", bearer(READ), {"text": "x"})
        await ask(APP, "GET", "/v1/thing", bearer(READ))
        await ask(APP, "POST", ADDRESS, body={"key": OTHER}, client="198.51.100.9")
        await ask(APP, "DELETE", ADDRESS, cookie | csrf)

    acted = [line for line in lines if line["event"] == "http.acted"]
    [key_id] = {line["key_id"] for line in acted}
    assert [(line["request_id"], line["role"], line["how"]) for line in acted] == [
        (by_session.headers["x-request-id"], "operate", "session"),
        (by_key.headers["x-request-id"], "operate", "key"),
    ]
    assert {(line["method"], line["path"]) for line in acted} == {("POST", "/v1/thing")}
    [came], [failed], [went] = (
        [line for line in lines if line["event"] == f"http.{name}"]
        for name in ("logged_in", "login_refused", "logged_out")
    )
    assert (came["key_id"], went["key_id"], failed["address"]) == (key_id, key_id, "198.51.100.9")
    text = str(lines)
    secrets = (OPERATE, READ, OTHER, cookie["cookie"].partition("=")[2], answer.json["csrf"])
    assert not any(secret in text for secret in secrets)


def test_the_repr_of_a_caller_hides_its_credentials():
    assert "c" * 43 not in repr(HttpCaller(Role.READ, AuthenticationMethod.SESSION, "id", "c" * 43))
