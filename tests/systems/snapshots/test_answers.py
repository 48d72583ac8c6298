"""Dead letters: any event can be stored in one, and every transport accepts it."""

from datetime import UTC, datetime

import msgspec
import pytest

from tidegate.systems.snapshots.events import FailedRefresh, FailureReason

KAFKA_TAKES = 1_000_000


def letter(event: bytes, *, subject_id: str = "character/7", text: str = "no") -> FailedRefresh:
    failed_at = datetime(2026, 11, 15, tzinfo=UTC)
    written = FailedRefresh.of(
        event=event,
        subject_id=subject_id,
        reason=FailureReason.PARSE_ERROR,
        message=text,
        trace=text,
        retries=0,
        failed_at=failed_at,
        worker="w",
    )
    return FailedRefresh.decode(written.encode())


@pytest.mark.parametrize(
    ("event", "kept"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b"no JSON \xff", "no JSON \\xff"),
        (b'{"a": "\xff"}', '{"a": "\\xff"}'),
        (b"[" * 5_000, "[" * 5_000),
        (b"[" * 5_000 + b"]" * 5_000, "[" * 5_000 + "]" * 5_000),
    ],
)
def test_a_dead_letter_has_the_event_as_received_or_a_text_of_it(event: bytes, kept: object):
    assert msgspec.json.decode(letter(event).event) == kept


@pytest.mark.parametrize("event", [b"\0" * 2_000_000, b"\xff" * 2_000_000, b'{"a": "%b"}' % (b"x" * 2_000_000)])
def test_a_dead_letter_of_a_large_event_is_marked_as_truncated(event: bytes):
    written = letter(event, subject_id="\x01" * 2_000_000, text="\x01" * 2_000_000)

    assert len(written.encode()) + len(written.subject_id) < KAFKA_TAKES
    assert str(msgspec.json.decode(written.event)).endswith(f"… (cut: it had {len(event)} bytes)")


def test_a_dead_letter_accepts_any_text():
    written = letter(b"{}", text="half of a sign: \ud800")

    assert written.message == written.trace == "half of a sign: \\ud800"
