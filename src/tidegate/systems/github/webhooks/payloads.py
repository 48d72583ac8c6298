"""Payloads of webhooks as conditional writes of the documents that a collection stores.

An item of a payload is stored as the list of its kind shows it, under the same id, owner and resource. Commits of a
push lack the accounts and the parents that the list has; they are stored if they are unknown, and the next run
completes them. `EVENTS` lists the supported events; others are not stored.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidegate.core.errors import UNDECODABLE, InvalidArgument
from tidegate.storage.documents import ConditionalWrite, Document, Listing, StoredDocument
from tidegate.systems.github import kinds
from tidegate.systems.github.items import Item
from tidegate.systems.github.repositories import INSIDE
from tidegate.systems.github.webhooks import rules

_NOTHING = b"null"
_NULL = msgspec.Raw(_NOTHING)
_ONLY_ALONE = frozenset(
    (
        *("additions", "changed_files", "comments", "commits", "deletions", "maintainer_can_modify", "mergeable"),
        *("mergeable_state", "merged", "merged_by", "rebaseable", "review_comments"),
    )
)
"""Fields of a pull request that items of lists do not have."""
_BRANCH = "refs/heads/"


class Owner(msgspec.Struct, frozen=True):
    """The account of a repository."""

    type: str | None = None


class WebhookRepository(msgspec.Struct, frozen=True):
    """The repository of a delivery at the time of sending."""

    id: int
    full_name: Annotated[str, Meta(pattern=r"\A[\w.-]+/[\w.-]+\Z", max_length=180)]
    default_branch: str | None = None
    updated_at: str | int | None = None
    """A number instead of a text in the payloads of some events."""
    owner: Owner | None = None

    @property
    def login(self) -> str:
        """Owner of its documents."""
        return self.full_name.partition("/")[0].lower()

    @property
    def resource(self) -> str:
        """Resource of the documents in it."""
        return f"{kinds.REPOSITORY_PREFIX}{self.full_name}"


class _Payload(msgspec.Struct, frozen=True):
    """The parts of a payload that are used."""

    repository: msgspec.Raw
    action: Annotated[str, Meta(pattern=r"\A[a-z_]{1,60}\Z")] | None = None
    issue: msgspec.Raw = _NULL
    comment: msgspec.Raw = _NULL
    pull_request: msgspec.Raw = _NULL
    review: msgspec.Raw = _NULL
    release: msgspec.Raw = _NULL
    label: msgspec.Raw = _NULL
    milestone: msgspec.Raw = _NULL
    forkee: msgspec.Raw = _NULL
    sender: msgspec.Raw = _NULL
    changes: msgspec.Raw = _NULL
    starred_at: str | None = None
    ref: str | None = None
    commits: list[msgspec.Raw] | None = None


class InvalidPayload(InvalidArgument):
    """The payload is not JSON, or lacks required fields of its event."""


class DeliverySubject(msgspec.Struct, frozen=True):
    """The parts of a payload that are needed to store it."""

    action: str | None
    repository: WebhookRepository


class DeliveryReport(msgspec.Struct, frozen=True):
    """The document writes of a delivery."""

    writes: Sequence[ConditionalWrite]
    completed: Sequence[Listing] = ()


class DeliveryContext(msgspec.Struct, frozen=True):
    """Stored state on which the writes of a delivery depend."""

    sweep: int = 0
    """The newest run: an active run may have read its list before the change."""
    repository: StoredDocument | None = None
    """The stored document of the repository, which has the list in which it was found."""


class _Release(Item):
    draft: bool = False


class _WebhookAccount(msgspec.Struct):
    id: int
    login: str | None = None


class _Review(msgspec.Struct):
    id: int
    node_id: str | None = None
    user: _WebhookAccount | None = None
    body: str | None = None
    state: str | None = None
    html_url: str | None = None
    submitted_at: str | None = None
    updated_at: str | None = None
    commit_id: str | None = None
    author_association: str | None = None


class _Pull(msgspec.Struct):
    id: int
    number: int
    updated_at: str | None = None


class _Person(msgspec.Struct):
    name: str | None = None
    email: str | None = None
    username: str | None = None
    date: str | None = None


class _PushedCommit(msgspec.Struct):
    id: Annotated[str, Meta(pattern=r"\A[0-9a-f]{40,64}\Z")]
    message: str | None = None
    timestamp: str | None = None
    tree_id: str | None = None
    url: str | None = None
    author: _Person | None = None
    committer: _Person | None = None


class _Moved(msgspec.Struct):
    new_issue: msgspec.Raw = _NULL
    new_repository: WebhookRepository | None = None


class _Changed(msgspec.Struct):
    former: Any = msgspec.field(name="from", default=None)


class _Context(msgspec.Struct, frozen=True):
    """A payload with the stored state on which its writes depend."""

    payload: _Payload
    repository: WebhookRepository
    at: DeliveryContext

    @staticmethod
    def of(body: bytes, at: DeliveryContext) -> "_Context":
        payload = msgspec.json.decode(body, type=_Payload)
        return _Context(payload, msgspec.json.decode(payload.repository, type=WebhookRepository), at)

    def document(
        self,
        kind: str,
        id: str,  # noqa: A002 - as in `Document.of`
        body: msgspec.Raw | Mapping[str, Any],
        *,
        version: str | None = None,
        repository: WebhookRepository | None = None,
    ) -> Document:
        """Build the document of an item of the repository."""
        found = repository or self.repository
        return Document.of(
            kind,
            id,
            owner=found.login,
            resource=found.resource,
            body=body,
            version=version,
            sweep=self.at.sweep,
        )

    def item(self, kind: str, raw: msgspec.Raw, *, repository: WebhookRepository | None = None) -> Document:
        """Build the document of an item with a number, in the form of its list."""
        found = msgspec.json.decode(raw, type=Item)
        return self.document(
            kind, str(found.id), msgspec.Raw(bytes(raw)), version=found.updated_at, repository=repository
        )


def read(event: str, body: bytes) -> DeliverySubject:
    """Parse a payload of one of `EVENTS`. Raises `InvalidPayload` if it lacks required fields."""
    try:
        # Converted once when it is received, so that an invalid payload is refused instead of stored.
        found = _Context.of(body, DeliveryContext())
        EVENTS[event](found)
    except (*UNDECODABLE, InvalidArgument) as error:
        raise InvalidPayload("payload", event, f"is not a payload of this event: {error}") from None
    return DeliverySubject(found.payload.action, found.repository)


def report(event: str, body: bytes, at: DeliveryContext) -> DeliveryReport:
    """The writes of a payload that `read` has accepted."""
    return EVENTS[event](_Context.of(body, at))


def _issues(it: _Context) -> DeliveryReport:
    document = it.item("issue", it.payload.issue)
    if it.payload.action == "deleted":
        return DeliveryReport([rules.permanently_deleted(document)])
    if it.payload.action != "transferred":
        return DeliveryReport([rules.newest(document)])
    writes, moved = [rules.permanently_deleted(document)], _Moved()
    if bytes(it.payload.changes) != _NOTHING:
        moved = msgspec.json.decode(it.payload.changes, type=_Moved)
    if moved.new_repository is not None and bytes(moved.new_issue) != _NOTHING:
        writes.append(rules.newest(it.item("issue", moved.new_issue, repository=moved.new_repository)))
    return DeliveryReport(writes)


def _issue_comment(it: _Context) -> DeliveryReport:
    comment, rule = it.item("issue_comment", it.payload.comment), _rule_of(it)
    return DeliveryReport([rule(comment), rules.newest(it.item("issue", it.payload.issue))])


def _pull_request(it: _Context) -> DeliveryReport:
    return DeliveryReport([rules.newest(_pull(it))])


def _pull_request_review_comment(it: _Context) -> DeliveryReport:
    return DeliveryReport([_rule_of(it)(it.item("review_comment", it.payload.comment)), rules.newest(_pull(it))])


def _pull_request_review(it: _Context) -> DeliveryReport:
    """A review, reduced to the fields that a collection requests by GraphQL."""
    review = msgspec.json.decode(it.payload.review, type=_Review)
    pull = msgspec.json.decode(it.payload.pull_request, type=_Pull)
    is_new = it.payload.action == "submitted"
    # Not every payload has the time of the review's change; that of its pull request is not earlier.
    version = review.updated_at or (review.submitted_at if is_new else pull.updated_at)
    body = {
        "id": review.id,
        "node_id": review.node_id,
        "pull_request_number": pull.number,
        "user": None if review.user is None else {"login": review.user.login, "id": review.user.id},
        "body": review.body or "",
        "state": (review.state or "").upper(),
        "html_url": review.html_url,
        "submitted_at": review.submitted_at,
        "commit_id": review.commit_id,
        "author_association": review.author_association,
    }
    return DeliveryReport(
        [rules.newest(it.document("review", str(review.id), body, version=version)), rules.newest(_pull(it))]
    )


def _pull(it: _Context) -> Document:
    """A pull request without the fields that lists do not have."""
    found = msgspec.json.decode(it.payload.pull_request, type=_Pull)
    fields = msgspec.json.decode(it.payload.pull_request, type=dict[str, msgspec.Raw])
    # Without them the fingerprint equals that of the list, so the next run does not count the document as changed.
    listed = msgspec.json.encode({name: value for name, value in fields.items() if name not in _ONLY_ALONE})
    return it.document("pull_request", str(found.id), msgspec.Raw(listed), version=found.updated_at)


def _push(it: _Context) -> DeliveryReport:
    """Commits of the default branch, which is what a collection reads."""
    found = it.repository
    # A collection reads only the default branch. Other commits could be marked as gone by the next run.
    if it.payload.ref is None or it.payload.ref != f"{_BRANCH}{found.default_branch}":
        return DeliveryReport([])
    given = [msgspec.json.decode(raw, type=_PushedCommit) for raw in it.payload.commits or () if bytes(raw) != _NOTHING]
    return DeliveryReport([rules.only_new(_commit(it, each)) for each in given])


def _commit(it: _Context, found: _PushedCommit) -> Document:
    body = {
        "sha": found.id,
        "commit": {
            "author": _signature(found.author, found.timestamp),
            "committer": _signature(found.committer, found.timestamp),
            "message": found.message or "",
            "tree": {"sha": found.tree_id},
        },
        "html_url": found.url,
        "author": _login(found.author),
        "committer": _login(found.committer),
    }
    return it.document("commit", f"{it.repository.id}:{found.id}", body)


def _signature(person: _Person | None, at: str | None) -> dict[str, Any] | None:
    return None if person is None else {"name": person.name, "email": person.email, "date": person.date or at}


def _login(person: _Person | None) -> dict[str, Any] | None:
    return None if person is None or person.username is None else {"login": person.username}


def _release(it: _Context) -> DeliveryReport:
    """A release; drafts are not stored, because only few tokens can read them."""
    found = msgspec.json.decode(it.payload.release, type=_Release)
    document = it.item("release", it.payload.release)
    if it.payload.action == "deleted":
        return DeliveryReport([rules.permanently_deleted(document)])
    if it.payload.action == "unpublished":
        return DeliveryReport([rules.marked_gone(document)])
    return (
        DeliveryReport([])
        if found.draft
        else DeliveryReport([_ordered(it, document, ("created", "published", "released"))])
    )


def _label(it: _Context) -> DeliveryReport:
    document = it.item("label", it.payload.label)
    if it.payload.action == "deleted":
        return DeliveryReport([rules.permanently_deleted(document)])
    return DeliveryReport([_ordered(it, document, ("created",), ("name", "color", "description"))])


def _milestone(it: _Context) -> DeliveryReport:
    return DeliveryReport([_rule_of(it)(it.item("milestone", it.payload.milestone))])


def _star(it: _Context) -> DeliveryReport:
    user = msgspec.json.decode(it.payload.sender, type=_WebhookAccount)
    at = it.payload.starred_at
    body = {"starred_at": at, "user": msgspec.Raw(bytes(it.payload.sender))}
    document = it.document("stargazer", f"{it.repository.id}:{user.id}", body)
    if it.payload.action == "deleted":
        return DeliveryReport([rules.marked_gone(document)])
    if at is None:
        raise InvalidArgument("starred_at", None, "must be a time")
    return DeliveryReport([rules.starred(document, at)])


def _fork(it: _Context) -> DeliveryReport:
    fields = msgspec.json.decode(it.payload.forkee, type=dict[str, msgspec.Raw])
    listed = msgspec.json.encode({name: value for name, value in fields.items() if name != "public"})
    return DeliveryReport([rules.newest(it.item("fork", msgspec.Raw(listed)))])


def _repository(it: _Context) -> DeliveryReport:
    """The repository itself, in the list in which a run found it; a deletion includes its contents."""
    found, stored = it.repository, it.at.repository
    account = "org" if found.owner is not None and found.owner.type == "Organization" else "user"
    resource = f"{account}:{found.login}/repos"
    # A run may have found it in a search or by its name; the document must stay in that list.
    if stored is not None and stored.owner == found.login:
        resource = stored.resource
    document = Document.of(
        kinds.REPOSITORY,
        str(found.id),
        owner=found.login,
        resource=resource,
        body=msgspec.Raw(bytes(it.payload.repository)),
        version=str(found.updated_at) if isinstance(found.updated_at, str) else None,
        sweep=it.at.sweep,
    )
    if it.payload.action != "deleted":
        return DeliveryReport([rules.newest(document)])
    # A number above every run so far, so that all present documents count as not seen.
    gone = [Listing(kind, found.resource, it.at.sweep + 1) for kind in INSIDE]
    return DeliveryReport([rules.marked_gone(document)], gone)


def _rule_of(it: _Context) -> Callable[[Document], ConditionalWrite]:
    return rules.permanently_deleted if it.payload.action == "deleted" else rules.newest


def _ordered(it: _Context, document: Document, creating: Sequence[str], named: Sequence[str] = ()) -> ConditionalWrite:
    """The write of an item that may have no timestamp.

    `creating` are the actions that create it; `named` are the fields that together identify its state.
    """
    if document.version is not None:
        return rules.newest(document)
    if it.payload.action in creating:
        return rules.only_new(document)
    present = msgspec.json.decode(document.text)
    # The state before the change: the present fields, except those that the payload reports as changed.
    before = {name: present.get(name) for name in named}
    if bytes(it.payload.changes) != _NOTHING:
        changes = msgspec.json.decode(it.payload.changes, type=dict[str, _Changed])
        before |= {name: change.former for name, change in changes.items()}
    return rules.successor(document, before)


EVENTS: Mapping[str, Callable[[_Context], DeliveryReport]] = {
    "fork": _fork,
    "issue_comment": _issue_comment,
    "issues": _issues,
    "label": _label,
    "milestone": _milestone,
    "pull_request": _pull_request,
    "pull_request_review": _pull_request_review,
    "pull_request_review_comment": _pull_request_review_comment,
    "push": _push,
    "release": _release,
    "repository": _repository,
    "star": _star,
}
"""The supported events and the functions that convert them."""
