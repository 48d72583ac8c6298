"""The objects that GraphQL knows here: repositories, their pull requests and discussions, and reviews."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidegate_simulators.github import profiles
from tidegate_simulators.github.comments import Comments
from tidegate_simulators.github.draws import iso
from tidegate_simulators.github.extras import DISCUSSIONS, MOST_REPLIES, Extras
from tidegate_simulators.github.items import Items, comment_id, number_of, pull_id, repository_of
from tidegate_simulators.github.pages import Key, Ordered, decode_cursor, encode_cursor
from tidegate_simulators.github.repository import Account, Repository, Standing
from tidegate_simulators.github.threads import Kind
from tidegate_simulators.github.world import World

CONNECTIONS = frozenset(
    {"comments", "discussions", "pullRequests", "replies", "reviews", "reviewThreads", "repositories"}
)
_LARGEST_INT = 2**31 - 1

Arguments = Mapping[str, Any]


class FieldProblem(Exception):
    """A field that cannot be given; the others can."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Node:
    """An object of a type; a field is a value, or a function of its arguments."""

    type_name: str
    fields: Mapping[str, Any]


def database_id(number: int) -> int | None:
    """GraphQL's numbers have 32 bits; ids that need more are told by `fullDatabaseId` only, as text."""
    return number if number <= _LARGEST_INT else None


class Schema:
    """The schema: the fields at which queries begin."""

    def __init__(self, world: World, items: Items, extras: Extras) -> None:
        self._world, self._items, self._extras = world, items, extras

    def root(self, account_id: int | None, rate_limit: Mapping[str, Any]) -> Node:
        """The object above all others, for one caller."""
        viewer = self._world.account_by_id(account_id) if account_id is not None else None
        return Node(
            "Query",
            {
                "viewer": self._user(viewer),
                "user": self._user_by_login,
                "repository": self._repository_by_name,
                "node": self._node_by_id,
                "nodes": self._nodes_by_ids,
                "rateLimit": Node("RateLimit", rate_limit),
            },
        )

    def _user(self, account: Account | None) -> Node | None:
        if account is None:
            return None
        shown = profiles.simple_user(account)
        return Node(
            "User",
            {
                "id": shown["node_id"],
                "login": account.login,
                "databaseId": account.id,
                "url": shown["html_url"],
                "repositories": partial(self._repositories, account),
            },
        )

    def _user_by_login(self, args: Arguments) -> Node | None:
        found = self._world.account(str(args.get("login")))
        if found is None:
            raise FieldProblem("NOT_FOUND", f"Could not resolve to a User with the login of '{args.get('login')}'.")
        return self._user(found)

    def _repository_by_name(self, args: Arguments) -> Node:
        """By the present name or a former one: GraphQL does not redirect, it follows."""
        name = f"{args.get('owner')}/{args.get('name')}"
        found = self._world.repository(name) or self._world.renamed(name)
        if found is None or found.standing in (Standing.PRIVATE, Standing.DELETED):
            raise FieldProblem("NOT_FOUND", f"Could not resolve to a Repository with the name '{name}'.")
        if found.standing is not Standing.PUBLIC:
            raise FieldProblem("FORBIDDEN", "Repository access blocked")
        return self._repository(found)

    def _node_by_id(self, args: Arguments) -> Node:
        return self._node(str(args.get("id")))

    def _nodes_by_ids(self, args: Arguments) -> list[Node | None]:
        """One for each id, and nothing where nothing is."""
        found: list[Node | None] = []
        for name in args.get("ids", []):
            try:
                found.append(self._node(str(name)))
            except FieldProblem:
                found.append(None)
        return found

    def _node(self, name: str) -> Node:
        try:
            prefix, _, encoded = name.partition("_")
            number = int.from_bytes(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        except ValueError:
            number, prefix = -1, ""
        if prefix in ("D", "DC"):
            shown = self._discussion_node(prefix, number)
            if shown is not None:
                return shown
            raise FieldProblem("NOT_FOUND", f"Could not resolve to a node with the global id of '{name}'")
        found = self._world.repository_by_id(number if prefix == "R" else repository_of(number))
        if found is not None and found.standing is Standing.PUBLIC:
            if prefix == "R":
                return self._repository(found)
            if prefix == "PR" and found.threads.has(number_of(number)):
                return self._pull(found, number_of(number))
        raise FieldProblem("NOT_FOUND", f"Could not resolve to a node with the global id of '{name}'")

    def _discussion_node(self, prefix: str, key: int) -> Node | None:
        """A discussion or a comment of one, by the number behind its name; see `extras.discussion_key`."""
        whole, code = divmod(key, 1_000) if prefix == "DC" else (key, 0)
        found, number = self._world.repository_by_id(whole // 1_000_000), whole % 1_000_000
        if found is None or found.standing is not Standing.PUBLIC or not found.has_discussions:
            return None
        if number not in {entry.number for entry in self._extras.of(found, DISCUSSIONS)}:
            return None
        return self._discussion_comment(found, number, code) if code else self._discussion(found, number)

    def _repository(self, found: Repository) -> Node:
        return Node(
            "Repository",
            {
                "id": profiles.node_id("R", found.id),
                "databaseId": database_id(found.id),
                "name": found.name,
                "nameWithOwner": found.full_name,
                "owner": self._user(found.owner),
                "isPrivate": False,
                "hasIssuesEnabled": found.has_issues,
                "stargazerCount": found.stars,
                "createdAt": iso(found.start),
                "pullRequests": partial(self._pulls, found),
                "pullRequest": partial(self._pull_by_number, found),
                "hasDiscussionsEnabled": found.has_discussions,
                "discussions": partial(self._discussions, found),
            },
        )

    def _repository_again(self, found: Repository, _args: Arguments) -> Node:
        """Made only when asked for: it leads back to everything else."""
        return self._repository(found)

    def _repositories(self, account: Account, args: Arguments) -> Node:
        owned = [r for r in self._world.repositories_of(account) if r.standing is Standing.PUBLIC]
        entries = Ordered(range(len(owned)), lambda i: (owned[i].id, 0), descending=False)
        return connection("RepositoryConnection", entries, lambda i: self._repository(owned[i]), args)

    def _pull_by_number(self, found: Repository, args: Arguments) -> Node:
        number = int(args.get("number", 0))
        if not found.threads.has(number) or not found.threads.kinds[number]:
            raise FieldProblem("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
        return self._pull(found, number)

    def _pulls(self, found: Repository, args: Arguments) -> Node:
        order = args.get("orderBy") or {}
        by_update = order.get("field") == "UPDATED_AT"
        column = found.threads.updated if by_update else found.threads.created

        def key(number: int) -> Key:
            return column[number], number

        states = args.get("states")
        wanted = {states} if isinstance(states, str) else set(states or ())
        numbers = [n for n in found.threads.pulls() if not wanted or _state(found, n) in wanted]
        entries = Ordered(sorted(numbers, key=key), key, order.get("direction") == "DESC")
        return connection("PullRequestConnection", entries, lambda n: self._pull(found, n), args)

    def _discussions(self, found: Repository, args: Arguments) -> Node:
        """None where they are disabled."""
        order = args.get("orderBy") or {}
        by_update = order.get("field") == "UPDATED_AT"
        entries = {one.number: one for one in self._extras.of(found, DISCUSSIONS)} if found.has_discussions else {}

        def key(number: int) -> Key:
            return entries[number].updated if by_update else entries[number].created, number

        ordered = Ordered(sorted(entries, key=key), key, order.get("direction") == "DESC")
        return connection("DiscussionConnection", ordered, lambda n: self._discussion(found, n), args)

    def _discussion(self, found: Repository, number: int) -> Node:
        shown = self._extras.discussion(found, number)
        category, answer = shown["category"], shown["answer"]
        author = self._shown_user(shown)
        by = None if shown["answer_chosen_by"] is None else self._user(found.owner)
        return Node(
            "Discussion",
            {
                "id": shown["node_id"],
                "databaseId": shown["id"],
                "number": number,
                "title": shown["title"],
                "body": shown["body"],
                "url": shown["html_url"],
                "createdAt": shown["created_at"],
                "updatedAt": shown["updated_at"],
                "closed": shown["closed"],
                "closedAt": shown["closed_at"],
                "stateReason": shown["state_reason"],
                "locked": shown["locked"],
                "activeLockReason": shown["active_lock_reason"],
                "authorAssociation": shown["author_association"],
                "author": author,
                "category": Node(
                    "DiscussionCategory",
                    {
                        "id": category["node_id"],
                        "name": category["name"],
                        "slug": category["slug"],
                        "isAnswerable": category["is_answerable"],
                    },
                ),
                "isAnswered": shown["is_answered"],
                "answerChosenAt": shown["answer_chosen_at"],
                "answerChosenBy": by,
                "answer": None if answer is None else Node("DiscussionComment", _comment(answer)),
                "upvoteCount": shown["upvotes"],
                "comments": partial(self._discussion_comments, found, number),
            },
        )

    def _discussion_comments(self, found: Repository, number: int, args: Arguments) -> Node:
        codes = [MOST_REPLIES * (n + 1) for n in range(len(self._extras.talk_of(found, number)))]
        return self._talk(found, number, codes, args)

    def _replies(self, found: Repository, number: int, code: int, args: Arguments) -> Node:
        comment, reply = divmod(code, MOST_REPLIES)
        replies = [] if reply else self._extras.talk_of(found, number)[comment - 1][1:]
        return self._talk(found, number, [code + each for each in replies], args)

    def _talk(self, found: Repository, number: int, codes: list[int], args: Arguments) -> Node:
        entries = Ordered(codes, lambda code: (code, 0), descending=False)

        def make(code: int) -> Node:
            return self._discussion_comment(found, number, code)

        return connection("DiscussionCommentConnection", entries, make, args)

    def _discussion_comment(self, found: Repository, number: int, code: int) -> Node:
        shown = self._extras.discussion_comment(found, number, *divmod(code, MOST_REPLIES))
        return Node(
            "DiscussionComment",
            {
                "id": shown["node_id"],
                "databaseId": shown["id"],
                "body": shown["body"],
                "url": shown["html_url"],
                "createdAt": shown["created_at"],
                "updatedAt": shown["updated_at"],
                "author": self._shown_user(shown),
                "authorAssociation": shown["author_association"],
                "isAnswer": shown["is_answer"],
                "upvoteCount": shown["upvotes"],
                "replies": partial(self._replies, found, number, code),
            },
        )

    def _shown_user(self, shown: Mapping[str, Any]) -> Node | None:
        return None if shown["user"] is None else self._user(self._world.account(shown["user"]["login"]))

    def _pull(self, found: Repository, number: int) -> Node:
        threads, shown = found.threads, self._items.pull(found, number)
        return Node(
            "PullRequest",
            {
                "id": shown["node_id"],
                "databaseId": database_id(shown["id"]),
                "fullDatabaseId": str(pull_id(found, number)),
                "number": number,
                "title": shown["title"],
                "state": _state(found, number),
                "merged": threads.kinds[number] == Kind.MERGED_PULL,
                "createdAt": shown["created_at"],
                "updatedAt": shown["updated_at"],
                "closedAt": shown["closed_at"],
                "mergedAt": shown["merged_at"],
                "url": shown["html_url"],
                "author": self._user(self._items.author(found, number)),
                "repository": partial(self._repository_again, found),
                "reviews": partial(self._reviews, found, number),
                "reviewThreads": partial(self._review_threads, found, number),
            },
        )

    def _review_threads(self, found: Repository, number: int, args: Arguments) -> Node:
        """Each review comment begins a thread, since none of this world is a reply."""
        by_pull = found.view("review comments by pull", lambda: _grouped(found.review_comments))
        entries = Ordered(by_pull.get(number, []), lambda o: (o, 0), descending=False)
        return connection("PullRequestReviewThreadConnection", entries, lambda o: self._review_thread(found, o), args)

    def _review_thread(self, found: Repository, ordinal: int) -> Node:
        shown = self._items.review_thread(found, ordinal)
        return Node(
            "PullRequestReviewThread",
            {
                "id": shown["id"],
                "isResolved": shown["is_resolved"],
                "isOutdated": shown["is_outdated"],
                "isCollapsed": shown["is_collapsed"],
                "path": shown["path"],
                "line": shown["line"],
                "startLine": shown["start_line"],
                "originalLine": shown["original_line"],
                "diffSide": shown["diff_side"],
                "subjectType": shown["subject_type"],
                "resolvedBy": self._user(found.owner) if shown["resolved_by"] is not None else None,
                "comments": partial(self._thread_comments, found, ordinal),
            },
        )

    def _thread_comments(self, found: Repository, ordinal: int, args: Arguments) -> Node:
        entries = Ordered([ordinal], lambda o: (o, 0), descending=False)
        return connection("PullRequestReviewCommentConnection", entries, lambda o: self._line_comment(found, o), args)

    def _line_comment(self, found: Repository, ordinal: int) -> Node:
        shown, number = self._items.review_comment(found, ordinal), comment_id(found, ordinal)
        return Node(
            "PullRequestReviewComment",
            {"id": shown["node_id"], "databaseId": database_id(number), "fullDatabaseId": str(number)},
        )

    def _reviews(self, found: Repository, number: int, args: Arguments) -> Node:
        by_pull: dict[int, list[int]] = found.view("reviews by pull", lambda: _grouped(found.reviews))
        entries = Ordered(by_pull.get(number, []), lambda o: (o, 0), descending=False)
        return connection("PullRequestReviewConnection", entries, lambda o: self._review(found, o), args)

    def _review(self, found: Repository, ordinal: int) -> Node:
        shown = self._items.review(found, ordinal)
        return Node(
            "PullRequestReview",
            {
                "id": shown["node_id"],
                "databaseId": database_id(shown["id"]),
                "fullDatabaseId": str(shown["id"]),
                "state": shown["state"],
                "body": shown["body"],
                "submittedAt": shown["submitted_at"],
                "createdAt": shown["submitted_at"],
                "updatedAt": shown["submitted_at"],
                "url": shown["html_url"],
                "authorAssociation": shown["author_association"],
                "commit": Node("Commit", {"oid": shown["commit_id"]}),
                "author": self._user(self._items.speaker(found, found.reviews, ordinal)),
            },
        )


def _state(found: Repository, number: int) -> str:
    if found.threads.kinds[number] == Kind.MERGED_PULL:
        return "MERGED"
    return "CLOSED" if found.threads.closed[number] else "OPEN"


def _comment(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {"databaseId": shown["id"], "url": shown["html_url"]}


def _grouped(said: Comments) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for ordinal in said.ordinals():
        groups.setdefault(said.parents[ordinal], []).append(ordinal)
    return groups


def connection(type_name: str, entries: Ordered, make: Callable[[int], Node], args: Arguments) -> Node:
    """A part of a list: `first` after `after`, or `last` before `before`."""
    after, before = args.get("after"), args.get("before")
    low = entries.offset_after(decode_cursor(after)) if after else 0
    high = entries.offset_of(decode_cursor(before)) if before else len(entries)
    if "first" in args:
        start, end = low, min(high, low + args["first"])
    else:
        start, end = max(low, high - args["last"]), high
    shown = entries.part(start, max(0, end - start))
    nodes = [make(entry) for entry in shown]
    cursors = [encode_cursor(entries.key(entry)) for entry in shown]
    page_info = {
        "hasNextPage": end < len(entries),
        "hasPreviousPage": start > 0,
        "startCursor": cursors[0] if cursors else None,
        "endCursor": cursors[-1] if cursors else None,
    }
    edges = [Node("Edge", {"node": node, "cursor": cursor}) for node, cursor in zip(nodes, cursors, strict=True)]
    return Node(
        type_name,
        {"nodes": nodes, "edges": edges, "totalCount": len(entries), "pageInfo": Node("PageInfo", page_info)},
    )
