"""Changes of the world: on demand, and automatically while it is being read."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.github.draws import DAY_S
from tidegate_simulators.github.items import Items
from tidegate_simulators.github.profiles import repository
from tidegate_simulators.github.repository import Repository, Standing
from tidegate_simulators.github.threads import Gone
from tidegate_simulators.github.world import World
from tidegate_simulators.validation import require_positive

OPERATIONS = (
    "open_issue", "open_pull", "close", "merge", "reopen", "edit", "comment", "review_comment", "review",
    "edit_comment", "delete_comment", "delete_issue", "transfer_issue", "push", "push_late", "rename", "transfer",
    "rename_user", "disable_issues", "enable_issues", "make_private", "make_public", "delete", "take_down", "block",
    "star", "require_sign_on", "recreate", "disable_discussions", "enable_discussions",
    "resolve_thread",
)  # fmt: skip


class Mutations:
    """Every change happens now, by the world's clock, and is seen by the next call."""

    def __init__(self, world: World, restless: float = 0) -> None:
        self._world, self._restless, self._read = world, restless, 0
        self._items = Items(world)

    def apply(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """One change by its name, as the admin interface asks for it."""
        if operation not in OPERATIONS:
            raise InvalidArgument("op", operation, f"must be one of {', '.join(OPERATIONS)}")
        method: Callable[..., Any] = getattr(self, operation)
        try:
            inspect.signature(method).bind(**arguments)
        except TypeError as mismatch:
            raise InvalidArgument("arguments", dict(arguments), str(mismatch)) from None
        return method(**arguments)

    def after_read(self, repository: Repository) -> bool:
        """Perhaps something happens between two pages: mostly a new item in front, sometimes an old one moves there."""
        self._read += 1
        bits = draw(self._world.shape.seed, self._read, 111)
        if fraction(bits) >= self._restless:
            return False
        numbers = repository.threads.numbers()
        if bits & 3 == 0 and numbers:
            self.comment(repository.full_name, numbers[(bits >> 8) % len(numbers)])
        elif bits & 3 == 1 and len(repository.history):
            self.push(repository.full_name)
        elif bits & 3 == 2 or not repository.has_issues:
            self.open_pull(repository.full_name)
        else:
            self.open_issue(repository.full_name)
        return True

    def _repository(self, repo: str) -> Repository:
        return self._world.require_repository(repo)

    def _thread(self, repo: str, number: int, *, pull: bool | None = None) -> Repository:
        found = self._repository(repo)
        if not found.threads.has(number) or (pull and not found.threads.kinds[number]):
            raise NotFound("pull request" if pull else "issue", f"{repo}#{number}")
        return found

    def open_issue(self, repo: str) -> int:
        """A new issue; its number."""
        found = self._repository(repo)
        if not found.has_issues:
            raise InvalidArgument("repo", repo, "has its issues disabled")
        return self._opened(found, "IssuesEvent", is_pull=False)

    def open_pull(self, repo: str) -> int:
        """A new pull request; its number."""
        return self._opened(self._repository(repo), "PullRequestEvent", is_pull=True)

    def _opened(self, found: Repository, event: str, *, is_pull: bool) -> int:
        now = self._world.now()
        number = found.threads.open(now, is_pull=is_pull, author_id=found.owner.id)
        self._world.events_of(found.owner).add(event, now, found.id)
        found.changed()
        self._report_thread(found, number, "opened")
        return number

    def _report_thread(self, found: Repository, number: int, action: str) -> None:
        if found.threads.kinds[number]:
            shown = self._items.whole_pull(found, number)
            self._world.report("pull_request", action, found, number=number, pull_request=shown)
        else:
            self._world.report("issues", action, found, issue=self._items.issue(found, number))

    def _report_comment(self, found: Repository, ordinal: int, action: str) -> None:
        issue = self._items.issue(found, found.comments.parents[ordinal])
        comment = self._items.comment(found, ordinal)
        self._world.report("issue_comment", action, found, issue=issue, comment=comment)

    def _report_push(self, found: Repository, shas: list[str]) -> None:
        commits = [self._items.pushed_commit(found, sha) for sha in shas]
        shown = {**repository(found), "master_branch": "main", "created_at": found.start, "pushed_at": found.touched}
        self._world.report(
            "push",
            None,
            found,
            ref="refs/heads/main",
            before="0" * 40,
            after=shas[-1],
            created=False,
            deleted=False,
            forced=False,
            commits=commits,
            head_commit=commits[-1],
            repository=shown,
        )

    def close(self, repo: str, number: int) -> None:
        """Close an issue or a pull request."""
        found = self._thread(repo, number)
        found.threads.close(number, self._world.now())
        found.changed()
        self._report_thread(found, number, "closed")

    def merge(self, repo: str, number: int) -> None:
        """Merge a pull request."""
        found = self._thread(repo, number, pull=True)
        found.threads.close(number, self._world.now(), merged=True)
        found.changed()
        self._report_thread(found, number, "closed")

    def reopen(self, repo: str, number: int) -> None:
        """Open an issue or a pull request again."""
        found = self._thread(repo, number)
        found.threads.reopen(number, self._world.now())
        found.changed()
        self._report_thread(found, number, "reopened")

    def edit(self, repo: str, number: int) -> None:
        """Give an issue or a pull request another title."""
        found = self._thread(repo, number)
        found.threads.edit(number, self._world.now())
        found.changed()
        self._report_thread(found, number, "edited")

    def comment(self, repo: str, number: int) -> int:
        """A comment on an issue or a pull request; its ordinal."""
        found = self._thread(repo, number)
        found.threads.replies[number] += 1
        ordinal = found.comments.add(number, self._world.now(), author_id=found.owner.id)
        found.changed()
        self._report_comment(found, ordinal, "created")
        return ordinal

    def review_comment(self, repo: str, number: int) -> int:
        """A comment on a line of a pull request; its ordinal."""
        found = self._thread(repo, number, pull=True)
        ordinal = found.review_comments.add(number, self._world.now(), author_id=found.owner.id)
        found.changed()
        self._world.report(
            "pull_request_review_comment",
            "created",
            found,
            pull_request=self._items.pull(found, number),
            comment=self._items.review_comment(found, ordinal),
        )
        return ordinal

    def review(self, repo: str, number: int) -> int:
        """A review of a pull request; its ordinal."""
        found = self._thread(repo, number, pull=True)
        ordinal = found.reviews.add(number, self._world.now(), author_id=found.owner.id)
        found.changed()
        shown = self._items.review(found, ordinal)
        self._world.report(
            "pull_request_review",
            "submitted",
            found,
            pull_request=self._items.pull(found, number),
            review={**shown, "state": str(shown["state"]).lower()},
        )
        return ordinal

    def edit_comment(self, repo: str, ordinal: int) -> None:
        """Change the text of a comment."""
        found = self._repository(repo)
        if ordinal not in found.comments.ordinals():
            raise NotFound("comment", ordinal)
        found.comments.edit(ordinal, self._world.now())
        found.changed()
        self._report_comment(found, ordinal, "edited")

    def delete_comment(self, repo: str, ordinal: int) -> None:
        """Remove a comment: no list ever says that it was there."""
        found = self._repository(repo)
        if ordinal not in found.comments.ordinals():
            raise NotFound("comment", ordinal)
        found.comments.remove(ordinal)
        found.threads.replies[found.comments.parents[ordinal]] -= 1
        found.changed()
        self._report_comment(found, ordinal, "deleted")

    def delete_issue(self, repo: str, number: int) -> None:
        """Remove an issue and its comments."""
        found = self._thread(repo, number)
        shown = self._items.issue(found, number)
        self._remove(found, number, Gone())
        self._world.report("issues", "deleted", found, issue=shown)

    def transfer_issue(self, repo: str, number: int, to: str) -> int:
        """Move an issue to another repository, where it has another number and another id."""
        source, target = self._thread(repo, number), self._repository(to)
        if source is target or source.threads.kinds[number]:
            raise InvalidArgument("number", number, "must be an issue, and go to another repository")
        now = self._world.now()
        moved = target.threads.open(source.threads.created[number], author_id=source.owner.id)
        target.threads.closed[moved] = source.threads.closed[number]
        for ordinal in source.comments.of(number):
            target.comments.add(moved, now, created=source.comments.created[ordinal], author_id=source.owner.id)
        target.threads.replies[moved] = source.threads.replies[number]
        target.threads.touch(moved, now)
        target.changed()
        shown, new = self._items.issue(source, number), self._items.issue(target, moved)
        self._remove(source, number, Gone(target.id, moved))
        changes = {"new_issue": new, "new_repository": repository(target)}
        self._world.report("issues", "transferred", source, issue=shown, changes=changes)
        return moved

    def _remove(self, found: Repository, number: int, gone: Gone) -> None:
        for said in (found.comments, found.review_comments, found.reviews):
            for ordinal in said.of(number):
                said.remove(ordinal)
        found.threads.gone[number] = gone
        found.changed()

    def push(self, repo: str, count: int = 1) -> list[str]:
        """Add commits that are made now."""
        require_positive("count", count)
        found, now = self._repository(repo), self._world.now()
        shas = [found.history.push(now, author_id=found.owner.id) for _ in range(count)]
        self._world.events_of(found.owner).add("PushEvent", now, found.id)
        found.changed()
        self._report_push(found, shas)
        return shas

    def push_late(self, repo: str, count: int = 1, days: float = 30) -> list[str]:
        """Commits made long ago on a branch that is merged now: the last sha is that of the merge."""
        require_positive("count", count)
        require_positive("days", days)
        found, now = self._repository(repo), self._world.now()
        shas = found.history.push_late(count, now - int(days * DAY_S), now)
        found.changed()
        self._report_push(found, shas)
        return shas

    def rename(self, repo: str, name: str) -> None:
        """Give a repository another name."""
        found, former = self._repository(repo), repo.partition("/")[2]
        self._world.rename(found, name)
        self._world.report("repository", "renamed", found, changes={"repository": {"name": {"from": former}}})

    def transfer(self, repo: str, to: str) -> None:
        """Give a repository to another user."""
        found = self._repository(repo)
        former = {"user": {"login": found.owner.login, "id": found.owner.id}}
        self._world.rename(found, found.name, self._world.require_account(to))
        self._world.report("repository", "transferred", found, changes={"owner": {"from": former}})

    def rename_user(self, login: str, to: str) -> None:
        """Give a user another login."""
        if self._world.account(to) is not None:
            raise InvalidArgument("to", to, "is taken")
        self._world.rename_account(self._world.require_account(login), to)

    def disable_issues(self, repo: str) -> None:
        """Issues answer 410 from now on."""
        self._set(repo, "edited", has_issues=False)

    def enable_issues(self, repo: str) -> None:
        """Enable the issues of a repository again."""
        self._set(repo, "edited", has_issues=True)

    def resolve_thread(self, repo: str, ordinal: int) -> None:
        """Resolve the thread that a review comment began. The pull request does not count as changed."""
        found = self._repository(repo)
        found.review_comments.resolved.add(ordinal)
        found.changed()

    def disable_discussions(self, repo: str) -> None:
        """Disable the discussions of a repository: GraphQL shows none from now on."""
        self._set(repo, "edited", has_discussions=False)

    def enable_discussions(self, repo: str) -> None:
        """Enable the discussions of a repository."""
        self._set(repo, "edited", has_discussions=True)

    def make_private(self, repo: str, *, still_listed: bool = False) -> None:
        """404 from now on; `still_listed`: its owner's list has not noticed yet."""
        self._set(repo, "privatized", standing=Standing.PRIVATE, still_listed=still_listed)

    def make_public(self, repo: str) -> None:
        """Make the repository public again."""
        self._set(repo, "publicized", standing=Standing.PUBLIC, still_listed=False)

    def delete(self, repo: str, *, still_listed: bool = False) -> None:
        """Delete a repository for good."""
        self._set(repo, "deleted", standing=Standing.DELETED, still_listed=still_listed)

    def take_down(self, repo: str) -> None:
        """451 from now on."""
        self._set(repo, None, standing=Standing.TAKEN_DOWN)

    def block(self, repo: str) -> None:
        """403 from now on, which is no limit."""
        self._set(repo, None, standing=Standing.BLOCKED)

    def require_sign_on(self, login: str) -> None:
        """An organization accepts only tokens that were authorized for its single sign-on."""
        self._world.require_account(login).requires_sign_on = True

    def recreate(self, repo: str) -> None:
        """Delete a repository and make another one, with another number and nothing in it, under the same name."""
        self._world.recreate(self._repository(repo))

    def star(self, repo: str, count: int = 1) -> None:
        """Add a star to a repository."""
        found = self._repository(repo)
        self._set(repo, None, stars=found.stars + count)

    def _set(self, repo: str, action: str | None, **values: Any) -> None:
        found = self._repository(repo)
        for name, value in values.items():
            setattr(found, name, value)
        found.changed(self._world.now())
        if action is not None:
            self._world.report("repository", action, found)
