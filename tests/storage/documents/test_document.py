"""What a document may be, and what makes two of them the same."""

from typing import Any

import bson
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.documents.harness import issue
from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents import LARGEST_BODY, Document, Listing
from tidegate.storage.documents.bodies import from_bson, to_bson
from tidegate.storage.documents.store import StoredVersion, is_older, is_taken, one_per_key

GOOD: dict[str, Any] = {"kind": "issue", "id": "1", "owner": "o", "resource": "r", "body": {}}


def made(**changes: Any) -> Document:
    given = {**GOOD, **changes}
    return Document.of(given.pop("kind"), given.pop("id"), **given)


@pytest.mark.parametrize("name", ["kind", "id", "owner", "resource", "version"])
@pytest.mark.parametrize("value", ["", " a", "a ", "a\nb", "a\0b", "x" * 201])
def test_names_that_servers_would_not_distinguish_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        made(**{name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "a|b"}, {"version": -1}, {"version": 2**63}, {"sweep": -1}, {"sweep": 2**63},
        {"body": {"x": object()}}, {"body": {"x": "\ud800"}}, {"body": {("a",): 1}},
        {"body": {"x": "x" * LARGEST_BODY}}, {"body": msgspec.Raw(b"[1]")}, {"body": msgspec.Raw(b'{"x": "\xff"}')},
    ],
)  # fmt: skip
def test_documents_that_no_store_accepts_are_refused_before_staging(change: dict[str, Any]) -> None:
    """One bad item must not keep a whole batch from being written."""
    with pytest.raises(InvalidArgument):
        made(**change)


@pytest.mark.parametrize(("kind", "sweep"), [("", 1), ("a|b", 1), ("issue", 0), ("issue", -1)])
def test_an_invalid_listing_is_refused(kind: str, sweep: int) -> None:
    with pytest.raises(InvalidArgument):
        Listing(kind, "r", sweep)


def test_the_repr_of_a_document_hides_its_body() -> None:
    assert "private" not in repr(issue(text="private"))


def test_hashed_fields_are_delimited() -> None:
    assert made(owner="ab", resource="c").hash != made(owner="a", resource="bc").hash
    assert made(version=1).hash != made().hash
    assert made(sweep=1).hash == made(sweep=2).hash


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_numbers_sort_numerically(one: int, other: int) -> None:
    assert is_older(made(version=one).version, made(version=other).version) == (one < other)


def test_duplicates_in_a_batch_are_merged() -> None:
    batch = [issue("b"), issue("a", version=2, sweep=1), issue("a", version=1, sweep=4), issue("b", title="last")]

    chosen = one_per_key(batch)

    assert [(each.id, each.version, each.sweep) for each in chosen] == [("a", batch[1].version, 4), ("b", None, 0)]
    assert chosen[1].hash == batch[3].hash


def test_an_unknown_version_is_neither_older_nor_newer() -> None:
    assert not is_older(None, "1")
    assert not is_older("1", None)
    assert is_taken(StoredVersion("other", "9", 0, "octocat", is_gone=False), issue())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=examples(40))
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values))
def test_every_body_survives_the_round_trip_through_mongodb(body: dict[str, Any]) -> None:
    document = made(body=body)
    found = bson.decode(bson.encode(to_bson(document.text)))

    assert msgspec.json.decode(from_bson(found)) == body


def test_ordinary_bodies_can_be_searched_in_mongodb() -> None:
    assert to_bson('{"a": {"b": [1, 2.5, null]}}') == {"body": {"a": {"b": [1, 2.5, None]}}, "body_json": None}


@pytest.mark.parametrize(
    "text", ['{"a.b": 1}', '{"a": [{"$b": 1}]}', '{"a": 9223372036854775808}', '{"a": ' + "[" * 90 + "]" * 90 + "}"]
)
def test_bodies_that_bson_cannot_represent_are_stored_as_text(text: str) -> None:
    assert to_bson(text) == {"body": None, "body_json": text}
