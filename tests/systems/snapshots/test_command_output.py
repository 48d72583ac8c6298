"""Messages about failed refreshes name no internal server."""

from datetime import UTC, datetime

import pytest

from tidegate.engine.upstream import ConnectFailed, Request, TooLarge
from tidegate.systems.snapshots.cache import RefreshFailure
from tidegate.systems.snapshots.calls import classify_failure
from tidegate.systems.snapshots.store import FAILED, RefreshStatus

INTERNAL = "http://game.internal:8080/v1/characters/7"


@pytest.mark.parametrize("kind", [ConnectFailed, TooLarge])
def test_a_failed_call_is_shown_without_its_url(kind: type[ConnectFailed | TooLarge]):
    failure = kind(Request(url=INTERNAL, purpose="game.character"), "no connection: refused", was_sent=False)

    assert getattr(classify_failure(failure), "message", None) == "game.character: no connection: refused"


def test_a_url_in_an_upstream_message_is_omitted():
    trouble = RefreshStatus(
        state=FAILED,
        reason="UPSTREAM_4XX",
        message=f"the upstream answered 400: see {INTERNAL} or 'redis://10.0.0.1:6379/0'",
        tries=3,
        changed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    told = RefreshFailure.of(trouble)

    assert told is not None
    assert told.message == "the upstream answered 400: see (address) or '(address)'"


def test_the_cached_copy_contains_no_url_either():
    told = RefreshFailure.shown("UPSTREAM_4XX", f"moved to {INTERNAL}", datetime(2026, 1, 1, tzinfo=UTC))

    assert told.message == "moved to (address)"
