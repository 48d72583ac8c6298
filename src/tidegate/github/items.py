"""Items of lists as documents: whole, under the id that never changes."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.collect.source import Task
from tidegate.documents import Document
from tidegate.upstream import Answer


class Item(msgspec.Struct):
    """What has to be known of an item; the rest is kept as it came."""

    id: int
    updated_at: str | None = None


class Parent(msgspec.Struct):
    """A commit that another one stands on."""

    sha: str


class Commit(msgspec.Struct):
    """A commit is known by its hash; it has no number."""

    sha: str
    parents: list[Parent] = []


class Event(msgspec.Struct):
    """The number of an event is a text."""

    id: str
    created_at: str


class Placed(msgspec.Struct):
    """The address of an item has the name of its repository, as it is now."""

    url: str = ""


_RAW = msgspec.json.Decoder(list[msgspec.Raw])
_PLACED = msgspec.json.Decoder(Placed)
_OWNER = re.compile(r"/repos/([^/]+)/")
_ITEM = msgspec.json.Decoder(Item)
_COMMIT = msgspec.json.Decoder(Commit)
_EVENT = msgspec.json.Decoder(Event)


def raw_list(answer: Answer) -> list[msgspec.Raw]:
    """The items of a page; an empty body has none. Raises `msgspec.DecodeError` where it is no list."""
    return _RAW.decode(answer.body) if answer.body else []


def new_owner(page: Sequence[msgspec.Raw], full_name: str) -> str | None:
    """To whom a repository passed since its owner's list was read; None where it is still his.

    Lists are asked for by number, and so go on after a transfer. What they bring is the new owner's then, who may have
    it already; written for the former one, it would be called gone when he is next collected.
    """
    found = _OWNER.search(_PLACED.decode(page[0]).url) if page else None
    if found is None or found[1].lower() == full_name.partition("/")[0].lower():
        return None
    return found[1]


def numbered(task: Task, kind: str, page: Sequence[msgspec.Raw]) -> tuple[list[Item], list[Document]]:
    """Items with a number, which may grow older."""
    items = [_ITEM.decode(raw) for raw in page]
    return items, [
        document(task, kind, str(item.id), raw, version=item.updated_at) for item, raw in zip(items, page, strict=True)
    ]


def commits(task: Task, kind: str, page: Sequence[msgspec.Raw], repository: int) -> tuple[list[Commit], list[Document]]:
    """Commits: the same one may be in several repositories."""
    items = [_COMMIT.decode(raw) for raw in page]
    return items, [document(task, kind, f"{repository}:{item.sha}", raw) for item, raw in zip(items, page, strict=True)]


def events(task: Task, kind: str, page: Sequence[msgspec.Raw]) -> tuple[list[Event], list[Document]]:
    """Events never change."""
    items = [_EVENT.decode(raw) for raw in page]
    return items, [document(task, kind, item.id, raw) for item, raw in zip(items, page, strict=True)]


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
