"""What the fuzzer cannot make up: values whose form a schema names, and that only the world can tell from others.

Read by the fuzzer itself, in a process of its own.
"""

import gc
import os
from typing import Any

import msgspec
import schemathesis
from hypothesis import strategies as st

# The fuzzer makes many objects that live long, and would look for garbage among them again and again.
gc.freeze()
gc.set_threshold(50_000, 20, 50)

GOOD: dict[str, Any] = msgspec.json.decode(os.environ["TIDEGATE_FUZZ_GOOD"])
"""A token, the app that the simulated GitHub knows, a key of the server, and what our page sends instead of it."""

AFTER = "1700000000000-3"
"""A dead letter; on Kafka there would be one number more."""
FORMATS = {
    "cron": ["0 3 * * *", "*/15 0-6 1,15 * *", "59 23 31 12 7", "0 0 29 2 *"],
    "time-zone": ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kathmandu"],
    "github-token": [GOOD["token"]],
    "rsa-private-key": [GOOD["app"]["private_key"]],
    "entrance": ["/shop?from=line", "https://shop.example:8443/in"],
    "title": ["", "Spring sale", "봄 세일"],
    "site": ["http://127.0.0.1:1", "https://shop.example"],
    "site-name": ["marketplace"],
    "source-name": ["github"],
    "subject": ["octocat", "@octocat", "octocat/hello-world", "org:github", "topic:crdt", "search:stars:>1000"],
    "user": ["octocat", "@octocat", "https://github.com/octocat"],
    "kind-of-jobs": ["issues", "pulls", "essential", "all"],
    "keyword": ["lantern", "steel rope", "등대"],
    "user-name": ["ada", "user@example.com", "김 철수"],
}
for _name, _values in FORMATS.items():
    schemathesis.openapi.format(_name, st.sampled_from(_values))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A good request has a good secret; whether one is good, GitHub decides. Bad requests stay as they are.

    Likewise a kind that is kept, and a key that it can have, which only the kind can say; and a board that there is.
    """
    del context, kwargs
    if case.operation.path == "/v1/session":
        _fit_login(case)
    elif len(case.operation.path) % 2 and case.meta.generation.mode.is_positive:  # half of them, as our page asks
        case.headers.update({"Authorization": "", **GOOD["page"]})
    if case.operation.path.startswith("/v1/snapshots/{kind}/{key}") and case.meta.generation.mode.is_positive:
        case.path_parameters = {"kind": "character", "key": str(1 + len(case.path_parameters["key"]))}
    if case.operation.path == "/v1/snapshots/dead" and case.meta.generation.mode.is_positive and "after" in case.query:
        case.query["after"] = AFTER
    is_replay = case.operation.path == "/v1/snapshots/dead/replay" and case.meta.generation.mode.is_positive
    if is_replay and isinstance(case.body, dict) and case.body.get("after") is not None:
        case.body["after"] = AFTER
    if {"since", "until"} <= set(case.query or ()) and case.meta.generation.mode.is_positive:
        case.query["until"] = "9000-01-01T00:00:00Z"  # after every `since`
    if "{board}" in case.operation.path and case.meta.generation.mode.is_positive:
        case.path_parameters["board"] = "a"
    if case.meta.generation.mode.is_positive and isinstance(case.body, dict):
        case.body = _whole(case.body)
    if case.operation.path.startswith("/v1/rooms") and case.meta.generation.mode.is_positive:
        _fit_room(case)
    if case.operation.path.startswith("/v1/campaigns") and case.meta.generation.mode.is_positive:
        _fit_campaign(case)
    if case.operation.path.startswith("/v1/crawl/") and case.meta.generation.mode.is_positive:
        _fit_crawl(case)
    if case.operation.path == "/v1/credentials" and case.meta.generation.mode.is_positive:
        body: Any = case.body
        for secret in ("token", "app"):
            if isinstance(body, dict) and body.get(secret) is not None:
                body[secret] = GOOD[secret]


def _fit_login(case: Any) -> None:
    """A good login has a good key: of wrong ones there may be only a few."""
    if isinstance(case.body, dict) and case.meta.generation.mode.is_positive:
        case.body["key"] = GOOD["key"]


def _whole(value: Any) -> Any:
    """Whole numbers as such: to a schema 4.0 is one, to us it is none."""
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fit_room(case: Any) -> None:
    """A room that there is, a longest session that is not shorter than a session, and a start that is to come."""
    if "{room}" in case.operation.path:
        case.path_parameters["room"] = "fuzzed"
    body: Any = case.body
    plan = body.get("plan", body) if isinstance(body, dict) else {}
    if isinstance(plan, dict) and ("capacity" in plan or case.method == "PATCH"):
        plan["longest_session_s"] = 86_400
    if isinstance(body, dict) and body.get("opens_at") is not None:
        body["opens_at"] = None


def _fit_campaign(case: Any) -> None:
    """A campaign that there is, of a kind that there is, which gives something; and times in their order."""
    if "{campaign}" in case.operation.path:
        case.path_parameters["campaign"] = "fuzzed"
    if "{user}" in case.operation.path:
        case.path_parameters["user"] = "ada"
    case.headers.pop("Idempotency-Key", None)
    body: Any = case.body
    if not isinstance(body, dict):
        return
    if "kind" in body:
        body["kind"], body["points"] = "POINTS", body.get("points") or 1
    if body.get("points") == 0:
        body["points"] = 1
    for name in ("starts_at", "ends_at", "data", "key"):
        body.pop(name, None)


def _fit_crawl(case: Any) -> None:
    """Headers with a User-Agent among them, of an identity whose name is not that of the built-in one."""
    if "{name}" in case.operation.path:
        case.path_parameters["name"] = "fuzzed"
    if isinstance(case.body, dict) and "headers" in case.body:
        case.body["headers"] = {"User-Agent": "Fuzzer/1"}
