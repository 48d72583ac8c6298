"""Invalid successful answers: bad items in a list, HTML, no body, another user's profile.

Which item of a page is corrupted depends on its id alone. So a page that is requested again has the same bad item, as
with the real GitHub, and an unchanged page keeps its ETag.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from tidegate_simulators.draws import draw
from tidegate_simulators.github.answers import Answer
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.config import FaultKind
from tidegate_simulators.github.world import World

CORRUPTIONS = frozenset(
    {
        FaultKind.HTML,
        FaultKind.EMPTY,
        FaultKind.NO_CONTENT,
        FaultKind.RESET_CONTENT,
        FaultKind.NULL_ITEM,
        FaultKind.NO_ID,
        FaultKind.WRONG_TYPE,
        FaultKind.NESTED_NULL,
        FaultKind.MIXED_UP,
    }
)
_HTML = b"<html><body><h1>Bad gateway, but the status line does not know.</h1></body></html>"
_IDS = ("id", "sha", "fullDatabaseId")
_NESTED = ("user", "author", "committer", "assignee", "milestone", "closed_by", "actor", "org", "commit_id", "commit")

Item = dict[str, Any]


class AnswerCorrupter:
    """Corrupts answers, and records the items that it hid."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.hidden: set[str] = set()
        """The ids (of commits the hashes) of all items that were null, without an id, or had one of another type."""

    def corrupt(self, call: Call, answer: Answer, kind: FaultKind) -> Answer | None:
        """The answer in another form; None where it has nothing that could be spoilt in this way."""
        match kind:
            case FaultKind.HTML:
                return Answer(200, _HTML, answer.headers, content_type="text/html", cost=answer.cost)
            case FaultKind.EMPTY:
                return Answer(200, b"", answer.headers, cost=answer.cost)
            case FaultKind.NO_CONTENT:
                return Answer(204, b"", answer.headers, cost=answer.cost)
            case FaultKind.RESET_CONTENT:
                return Answer(205, b"", answer.headers, cost=answer.cost)
            case FaultKind.MIXED_UP:
                return self._of_another(answer) if call.match.route == "user" else None
            case _:
                return self._with_bad_items(answer, kind)

    def _of_another(self, answer: Answer) -> Answer | None:
        profile = msgspec.json.decode(answer.body, type=Item)
        others = [login for login in self._world.logins() if login != profile["login"]]
        if not others:
            return None
        other = self._world.require_account(others[0])
        body = msgspec.json.encode({**profile, "id": other.id, "login": other.login})
        return Answer(200, body, answer.headers, cost=answer.cost)

    def _with_bad_items(self, answer: Answer, kind: FaultKind) -> Answer | None:
        content = msgspec.json.decode(answer.body)
        places = [place for place in _lists(content) if place]
        if not places:
            return None
        if kind is FaultKind.NESTED_NULL:
            for item in places[0]:
                _empty(item)
        else:
            self._corrupt_one(places[0], kind)
        return Answer(200, msgspec.json.encode(content), answer.headers, answer.last_modified, cost=answer.cost)

    def _corrupt_one(self, items: list[Any], kind: FaultKind) -> None:
        index, item = min(enumerate(items), key=lambda pair: draw(*_id(pair[1]).encode()[-8:]))
        self.hidden.add(_id(item))
        match kind:
            case FaultKind.NULL_ITEM:
                items[index] = None
            case FaultKind.NO_ID:
                items[index] = {name: value for name, value in item.items() if name not in _IDS}
            case _:
                items[index] = {name: {"value": value} if name in _IDS else value for name, value in item.items()}


def _id(item: Item) -> str:
    """The id of an item as its document has it, of a commit without its repository."""
    return str(next(item[name] for name in ("fullDatabaseId", "sha", "id") if name in item))


def _lists(content: Any) -> Iterator[list[Item]]:
    """The lists of documents in an answer: that of REST, or the reviews of each pull request."""
    if isinstance(content, list):
        yield cast("list[Item]", content)
        return
    node = (content.get("data") or {}).get("node") or {}
    pulls = [node] if "reviews" in node else node.get("pullRequests", {}).get("nodes", [])
    for pull in pulls:
        yield pull["reviews"]["nodes"]


def _empty(item: Item) -> None:
    """Set to null what GitHub leaves empty when an account, a fork or a commit was deleted."""
    for name in _NESTED:
        if name in item and not (name == "commit" and "sha" in item):
            item[name] = None
    for side in ("head", "base"):
        if isinstance(item.get(side), dict):
            item[side]["repo"] = item[side]["user"] = None
