"""One repository: its metadata, and its content, which is generated on first access."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from tidegate_simulators.draws import draw
from tidegate_simulators.github.comments import Comments
from tidegate_simulators.github.commits import History
from tidegate_simulators.github.config import Sizes
from tidegate_simulators.github.threads import Threads

_MOST_VIEWS = 64


class Standing(StrEnum):
    """Whether a repository may be read."""

    PUBLIC = "public"
    PRIVATE = "private"  # 404, and not listed
    DELETED = "deleted"  # 404, and not listed
    BLOCKED = "blocked"  # 403, which is no limit
    TAKEN_DOWN = "taken_down"  # 451


@dataclass
class Account:
    """A user, known by the number."""

    id: int
    login: str
    key: int
    created: int
    touched: int
    """When the profile last changed."""
    is_operator: bool = False
    is_organization: bool = False
    requires_sign_on: bool = False
    """An organization that answers 403 to tokens that were not authorized for its single sign-on."""
    former_logins: list[str] = field(default_factory=list[str])


@dataclass
class Repository:
    """Known by the number: names change. The content is generated when it is first asked for."""

    id: int
    owner: Account
    name: str
    key: int
    sizes: Sizes
    start: int
    end: int
    has_issues: bool = True
    has_discussions: bool = False
    standing: Standing = Standing.PUBLIC
    former_names: list[str] = field(default_factory=list[str])
    """Full names it once had, which are redirected."""
    still_listed: bool = False
    """Listed although it cannot be read any more: lists are sometimes behind."""
    stars: int = 0
    touched: int = 0
    """When something that is said about it last changed."""
    version: int = 0
    """Grows with every change; renderings of an older version are void."""
    _views: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])

    @property
    def full_name(self) -> str:
        """Owner and name, as they are now."""
        return f"{self.owner.login}/{self.name}"

    @property
    def is_listed(self) -> bool:
        """Whether its owner's list shows it."""
        return self.still_listed or self.standing not in (Standing.PRIVATE, Standing.DELETED)

    @cached_property
    def threads(self) -> Threads:
        """Issues and pull requests, with the `updated_at` that all comments and reviews gave them."""
        threads = Threads(draw(self.key, 1), self.sizes, self.start, self.end)
        numbers, pulls = threads.numbers(), threads.pulls()
        hosted = (
            (self.sizes.issue_comments, numbers),
            (self.sizes.review_comments, pulls),
            (self.sizes.reviews, pulls),
        )
        self._said = tuple(
            Comments(draw(self.key, 2 + i), count, hosts, threads, self.end) for i, (count, hosts) in enumerate(hosted)
        )
        for parent in self._said[0].parents[1:]:
            threads.replies[parent] += 1
        return threads

    @property
    def comments(self) -> Comments:
        """Comments on issues and pull requests."""
        return self._of_threads(0)

    @property
    def review_comments(self) -> Comments:
        """Comments on lines of pull requests."""
        return self._of_threads(1)

    @property
    def reviews(self) -> Comments:
        """Reviews of pull requests."""
        return self._of_threads(2)

    def _of_threads(self, index: int) -> Comments:
        _ = self.threads  # generates them
        return self._said[index]

    @cached_property
    def history(self) -> History:
        """Commits of the default branch."""
        return History(draw(self.key, 5), self.sizes.commits, self.start, self.end)

    def view(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """A list that costs something to make, kept until the repository changes."""
        if name not in self._views:
            while len(self._views) >= _MOST_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[name] = make()
        return self._views[name]

    def changed(self, at: int = 0) -> None:
        """Forget what was derived from the former state; `at`, if what is said about the repository changed."""
        self.version += 1
        self.touched = max(self.touched, at)
        self._views.clear()
