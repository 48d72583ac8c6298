"""Converts items of lists to documents: complete, under a permanent id. Unreadable items are skipped."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidegate.engine.items import Items, decode_with_items, read_items
from tidegate.engine.source import Task
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document

Text = Annotated[str, Meta(min_length=1)]


class Item(msgspec.Struct):
    """The fields of an item that are used; the document has all fields."""

    id: int
    updated_at: str | None = None
    number: int | None = None
    node_id: str | None = None
    url: str | None = None
    """URL of the item, which contains the current name of its repository."""


class Parent(msgspec.Struct):
    """A parent of a commit."""

    sha: Text


class Commit(msgspec.Struct):
    """A commit, identified by its hash."""

    sha: Text
    parents: list[Parent | None] | None = None
    url: str | None = None

    @property
    def parent_shas(self) -> list[str]:
        """The hashes of its parents, as far as the answer has them."""
        return [parent.sha for parent in self.parents or () if parent is not None]


class Actor(msgspec.Struct):
    """The account of an event."""

    id: int | None = None


class EventItem(msgspec.Struct):
    """An event; its number is a text."""

    id: Text
    created_at: Text
    actor: Actor | None = None


_LONGEST_ID = 120
_OWNER = re.compile(r"/repos/([^/]+)/")


def listed(answer: Answer, key: str | None) -> bytes:
    """The JSON of the list in an answer: the answer itself, or its field `key`.

    Raises one of `UNDECODABLE` if the answer has no such field.
    """
    if key is None:
        return answer.body
    fields = decode_with_items(answer.body, dict[str, msgspec.Raw], key)
    if key not in fields:
        raise msgspec.ValidationError(f"there is no list {key!r}")
    return bytes(fields[key])


def new_owner(found: Sequence[Item] | Sequence[Commit], full_name: str) -> str | None:
    """The new owner, if a repository was transferred after its former owner's list was read; otherwise None.

    Lists are requested by number, so they continue after a transfer. Their items belong to the new owner then. Stored
    for the former owner, they would be marked as gone in that owner's next run.
    """
    url = next((item.url for item in found if item.url), "")
    owner = _OWNER.search(url)
    if owner is None or owner[1].lower() == full_name.partition("/")[0].lower():
        return None
    return owner[1]


def plain_id(name: str) -> str:
    """An id that every store accepts: one that is too long or has special characters is replaced by its digest."""
    is_plain = 0 < len(name) <= _LONGEST_ID and name.isprintable() and name.strip() == name
    return name if is_plain else sha256(name.encode()).hexdigest()


def numbered(task: Task, kind: str, answer: Answer) -> Items[Item]:
    """Parse items that have a number."""
    return read_items(
        answer.body, Item, lambda item, raw: document(task, kind, str(item.id), raw, version=item.updated_at)
    )


def commits(task: Task, kind: str, answer: Answer, repository: int) -> Items[Commit]:
    """Parse commits; the id contains the repository, because several repositories may have the same commit."""
    return read_items(answer.body, Commit, lambda item, raw: document(task, kind, f"{repository}:{item.sha}", raw))


def events(task: Task, kind: str, answer: Answer) -> Items[EventItem]:
    """Parse events, which never change."""
    return read_items(answer.body, EventItem, lambda item, raw: document(task, kind, item.id, raw))


def document(
    task: Task,
    kind: str,
    id: str,  # noqa: A002 - as in `Document.of`
    body: msgspec.Raw | dict[str, Any],
    *,
    version: str | None = None,
) -> Document:
    """Build the document of an item, for the user and the list of the job."""
    return Document.of(
        kind,
        id,
        owner=task.user_id,
        resource=task.spec.resource,
        body=body,
        version=version,
        sweep=task.run_id,
    )
