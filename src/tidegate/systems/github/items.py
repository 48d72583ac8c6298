"""Items of lists as documents: whole, under the id that never changes. One that cannot be read is skipped."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidegate.engine.items import Items, read_items
from tidegate.engine.source import Task
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document

Text = Annotated[str, Meta(min_length=1)]


class Item(msgspec.Struct):
    """What has to be known of an item; the rest is kept as it came."""

    id: int
    updated_at: str | None = None
    number: int | None = None
    url: str | None = None
    """Its address has the name of its repository, as it is now."""


class Parent(msgspec.Struct):
    """A commit that another one stands on."""

    sha: Text


class Commit(msgspec.Struct):
    """A commit is known by its hash; it has no number."""

    sha: Text
    parents: list[Parent | None] | None = None
    url: str | None = None

    @property
    def parent_shas(self) -> list[str]:
        """The hashes of its parents, as far as GitHub names them."""
        return [parent.sha for parent in self.parents or () if parent is not None]


class Actor(msgspec.Struct):
    """The account that did something."""

    id: int | None = None


class EventItem(msgspec.Struct):
    """The number of an event is a text."""

    id: Text
    created_at: Text
    actor: Actor | None = None


_LONGEST_ID = 120
_OWNER = re.compile(r"/repos/([^/]+)/")


def content(answer: Answer) -> bytes:
    """The JSON of a list. Only a 204 stands for an empty one: a 200 without a body was cut off on its way."""
    return b"[]" if answer.status == 204 else answer.body


def new_owner(found: Sequence[Item] | Sequence[Commit], full_name: str) -> str | None:
    """The owner to whom a repository passed since its former owner's list was read; None if it did not.

    Lists are asked for by number, and so go on after a transfer. What they bring is the new owner's then, who may have
    it already; written for the former one, it would be called gone in that owner's next run.
    """
    url = next((item.url for item in found if item.url), "")
    owner = _OWNER.search(url)
    if owner is None or owner[1].lower() == full_name.partition("/")[0].lower():
        return None
    return owner[1]


def plain_id(name: str) -> str:
    """An id that every store takes: one that is too long or has odd characters is replaced by its digest."""
    is_plain = 0 < len(name) <= _LONGEST_ID and name.isprintable() and name.strip() == name
    return name if is_plain else sha256(name.encode()).hexdigest()


def numbered(task: Task, kind: str, answer: Answer) -> Items[Item]:
    """Items with a number, which may grow older."""
    return read_items(
        content(answer),
        Item,
        lambda item, raw: document(task, kind, str(item.id), raw, version=item.updated_at),
    )


def commits(task: Task, kind: str, answer: Answer, repository: int) -> Items[Commit]:
    """Commits: the same one may be in several repositories."""
    return read_items(content(answer), Commit, lambda item, raw: document(task, kind, f"{repository}:{item.sha}", raw))


def events(task: Task, kind: str, answer: Answer) -> Items[EventItem]:
    """Events never change."""
    return read_items(content(answer), EventItem, lambda item, raw: document(task, kind, item.id, raw))


def document(
    task: Task,
    kind: str,
    id: str,  # noqa: A002 - as in `Document.of`
    body: msgspec.Raw | dict[str, Any],
    *,
    version: str | None = None,
) -> Document:
    """One item, for the user and in the list of the job."""
    return Document.of(
        kind,
        id,
        owner=task.user_id,
        resource=task.spec.resource,
        body=body,
        version=version,
        sweep=task.run_id,
    )
