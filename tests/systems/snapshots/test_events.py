from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument
from tidegate.core.priority import Priority
from tidegate.systems.snapshots.events import Reason, RefreshEvent, UnknownSchema
from tidegate.systems.snapshots.model import SnapshotSubject

EVENT = RefreshEvent(
    event_id="e1",
    subject_id="character/maple/hero",
    priority=Priority.HIGH,
    reason=Reason.USER_REQUEST,
    requested_at=datetime(2026, 11, 15, 12, tzinfo=UTC),
    version=7,
    correlation_id="c1",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def test_an_event_has_the_field_names_of_the_contract():
    assert msgspec.json.decode(EVENT.encode()) == {
        "schemaVersion": "1.1",
        "eventId": "e1",
        "subjectId": "character/maple/hero",
        "upstreamId": None,
        "priority": "HIGH",
        "reason": "USER_REQUEST",
        "requestedAt": "2026-11-15T12:00:00Z",
        "correlationId": "c1",
        "version": 7,
    }


def test_an_event_survives_a_round_trip():
    assert RefreshEvent.decode(EVENT.encode()) == EVENT
    assert EVENT.subject == SnapshotSubject("character", "maple/hero")


@given(st.dictionaries(st.text(min_size=1).map(lambda name: f"x{name}"), json_values, max_size=4))
def test_fields_of_a_newer_minor_version_are_kept_and_passed_on(unknown: dict[str, Any]):
    newer = msgspec.json.decode(EVENT.encode()) | unknown | {"schemaVersion": "1.9"}

    event = RefreshEvent.decode(msgspec.json.encode(newer))

    assert msgspec.json.decode(event.encode()) == newer


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"schemaVersion": "2.0"}',
        b'{"schemaVersion": 1}',
        b'{"schemaVersion": "1.1"}',
        EVENT.encode().replace(b'"HIGH"', b'"MIDDLE"'),
        EVENT.encode().replace(b"7", b'"seven"'),
        EVENT.encode().replace(b"7", b"0"),
        EVENT.encode().replace(b"7", b"%d" % 2**70),
        EVENT.encode().replace(b'"c1"', b'"\xff"'),
        EVENT.encode().replace(b'"c1"', b"[" * 100_000 + b"]" * 100_000),
        EVENT.encode().replace(b'"HIGH"', b"[" * 900 + b"]" * 900),
    ],
)
def test_an_unparsable_event_is_refused(encoded: bytes):
    with pytest.raises(UnknownSchema):
        RefreshEvent.decode(encoded)


@pytest.mark.parametrize(
    ("kind", "key"), [("", "a"), ("a/b", "c"), ("a", ""), ("a", " b"), ("a", "b" * 121), ("a", "\n")]
)
def test_a_subject_with_an_invalid_name_is_refused(kind: str, key: str):
    with pytest.raises(InvalidArgument):
        SnapshotSubject(kind, key)
