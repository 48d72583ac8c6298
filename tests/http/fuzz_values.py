"""What the fuzzer cannot make up: values whose form a schema names, and that only the world can tell from others.

Read by the fuzzer itself, in a process of its own.
"""

import os
from typing import Any

import msgspec
import schemathesis
from hypothesis import strategies as st

GOOD: dict[str, Any] = msgspec.json.decode(os.environ["TIDEGATE_FUZZ_GOOD"])
"""A token, and the app that the simulated GitHub knows."""

FORMATS = {
    "cron": ["0 3 * * *", "*/15 0-6 1,15 * *", "59 23 31 12 7", "0 0 29 2 *"],
    "time-zone": ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kathmandu"],
    "github-token": [GOOD["token"]],
    "rsa-private-key": [GOOD["app"]["private_key"]],
}
for _name, _values in FORMATS.items():
    schemathesis.openapi.format(_name, st.sampled_from(_values))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A good request has a good secret; whether one is good, GitHub decides. Bad requests stay as they are.

    Likewise a kind that is kept, and a key that it can have, which only the kind can say; and a board that there is.
    """
    del context, kwargs
    if case.operation.path.startswith("/v1/snapshots/{kind}/{key}") and case.meta.generation.mode.is_positive:
        case.path_parameters = {"kind": "character", "key": str(1 + len(case.path_parameters["key"]))}
    if case.operation.path == "/v1/snapshots/dead" and case.meta.generation.mode.is_positive and "after" in case.query:
        case.query["after"] = "1700000000000-3"  # on Kafka there would be one number more
    if "{board}" in case.operation.path and case.meta.generation.mode.is_positive:
        case.path_parameters["board"] = "a"
    if case.operation.path == "/v1/credentials" and case.meta.generation.mode.is_positive:
        body: Any = case.body
        for secret in ("token", "app"):
            if isinstance(body, dict) and body.get(secret) is not None:
                body[secret] = GOOD[secret]
