"""Everything there is to collect: found by name or by number, generated when first asked for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidegate_simulators.clock import Clock, SystemClock
from tidegate_simulators.errors import NotFound
from tidegate_simulators.github import generation
from tidegate_simulators.github.config import Sizes, WorldShape
from tidegate_simulators.github.events import EventLog
from tidegate_simulators.github.repository import Account, Repository, Standing


class World:
    """Accounts and their repositories. The same shape and epoch give the same world; only mutations change it."""

    def __init__(self, shape: WorldShape | None = None, clock: Clock | None = None) -> None:
        self.shape = shape or WorldShape()
        self._clock = clock or SystemClock()
        epoch = self.shape.epoch or self._clock.now().replace(minute=0, second=0, microsecond=0)
        self.epoch = int(epoch.timestamp())
        self.accounts = [self._account(i) for i in range(self.shape.users + self.shape.operators)]
        self._by_login = {account.login.lower(): account for account in self.accounts}
        self._by_account_id = {account.id: account for account in self.accounts}
        self._former_logins: dict[str, Account] = {}
        self._ordinals = {account.id: ordinal for ordinal, account in enumerate(self.accounts)}
        self._owned: dict[int, list[Repository]] = {}
        self._by_repository_id: dict[int, Repository] = {}
        self._by_name: dict[str, Repository] = {}
        self._former_names: dict[str, Repository] = {}
        self._events: dict[int, EventLog] = {}
        self.on_change: Callable[[str, str | None, Repository, Mapping[str, Any]], object] | None = None
        """Called with each change: what a webhook calls it, and the parts of its payload."""

    def _account(self, index: int) -> Account:
        return generation.account(self.shape, index, self.epoch)

    def now(self) -> int:
        """The present second; changes happen at it."""
        return int(self._clock.now().timestamp())

    def logins(self) -> list[str]:
        """All users that can be collected."""
        return [account.login for account in self.accounts if not account.is_operator]

    def operators(self) -> list[str]:
        """All users that only own tokens."""
        return [account.login for account in self.accounts if account.is_operator]

    def account(self, login: str) -> Account | None:
        """By the present login; logins are the same in capitals."""
        return self._by_login.get(login.lower())

    def account_by_id(self, number: int) -> Account | None:
        """By the number, which never changes."""
        return self._by_account_id.get(number)

    def require_account(self, login: str) -> Account:
        """By the present login; raises `NotFound`."""
        account = self.account(login)
        if account is None:
            raise NotFound("user", login)
        return account

    def repositories_of(self, account: Account) -> list[Repository]:
        """All that belong to an account now, listed or not."""
        if account.id not in self._owned:
            self._owned[account.id] = []
            made = generation.repositories(self.shape, account, self._ordinals[account.id], self.epoch)
            for repository in made:
                self.adopt(repository)
        return self._owned[account.id]

    def adopt(self, repository: Repository) -> None:
        """Make it known under its number, its name and its former names."""
        self.repositories_of(repository.owner).append(repository)
        self._by_repository_id[repository.id] = repository
        self._by_name[repository.full_name.lower()] = repository
        for name in repository.former_names:
            self._former_names[name.lower()] = repository

    def repository(self, full_name: str) -> Repository | None:
        """By the present name only."""
        self._generate_for(full_name)
        return self._by_name.get(full_name.lower())

    def renamed(self, full_name: str) -> Repository | None:
        """By a name that it once had."""
        self._generate_for(full_name)
        return self._former_names.get(full_name.lower())

    def _generate_for(self, full_name: str) -> None:
        login = full_name.partition("/")[0].lower()
        account = self._by_login.get(login) or self._former_logins.get(login)
        if account is not None:
            self.repositories_of(account)

    def repository_by_id(self, number: int) -> Repository | None:
        """By the number, which never changes."""
        first_owner = generation.index_of_account(number)
        if 0 <= first_owner < len(self.accounts):
            self.repositories_of(self.accounts[first_owner])
        return self._by_repository_id.get(number)

    def require_repository(self, full_name: str) -> Repository:
        """By the present name; raises `NotFound`."""
        repository = self.repository(full_name)
        if repository is None:
            raise NotFound("repository", full_name)
        return repository

    def rename(self, repository: Repository, name: str, owner: Account | None = None) -> None:
        """Give it another name, or another owner; the former full name is redirected from now on."""
        former = repository.full_name
        self._by_name.pop(former.lower(), None)
        self.repositories_of(repository.owner).remove(repository)
        repository.former_names.append(former)
        repository.name, repository.owner = name, owner or repository.owner
        self._former_names.pop(repository.full_name.lower(), None)
        self.adopt(repository)
        repository.changed(self.now())

    def recreate(self, repository: Repository) -> None:
        """Replace a repository by an empty one of the same name."""
        owned = self.repositories_of(repository.owner)
        number = max(one.id for one in owned) + 500
        owned.remove(repository)
        repository.standing = Standing.DELETED
        self._by_name.pop(repository.full_name.lower(), None)
        fresh = Repository(
            number, repository.owner, repository.name, number, Sizes(), self.now(), self.now(), touched=self.now()
        )
        self.adopt(fresh)

    def rename_account(self, account: Account, login: str) -> None:
        """Rename a user: the former login is free, but repositories under it are redirected."""
        owned, former = self.repositories_of(account), account.login
        for repository in owned:
            self._by_name.pop(repository.full_name.lower(), None)
            repository.former_names.append(repository.full_name)
            self._former_names[repository.full_name.lower()] = repository
        account.former_logins.append(former)
        self._former_logins[former.lower()] = account
        self._by_login.pop(former.lower())
        self._by_login[login.lower()] = account
        account.login, account.touched = login, self.now()
        for repository in owned:
            self._by_name[repository.full_name.lower()] = repository
            repository.changed(self.now())

    def events_of(self, account: Account) -> EventLog:
        """What the account did lately."""
        if account.id not in self._events:
            self._events[account.id] = EventLog(account, self.shape.events, self.epoch)
        return self._events[account.id]

    def contributor(self, bits: int, owner: Account) -> Account | None:
        """The author of an item in a repository: mostly its owner, sometimes a deleted account."""
        if bits & 3:
            return owner
        if bits >> 2 & 31 == 0:
            return None
        return self.accounts[(bits >> 8) % self.shape.users]

    def report(self, event: str, action: str | None, found: Repository, **parts: Any) -> None:
        """Announce a change to the hooks."""
        if self.on_change is not None:
            self.on_change(event, action, found, parts)

    def warm(self) -> None:
        """Generate everything now, so that no answer has to wait for it."""
        for repository in self.all_repositories():
            _ = repository.threads, repository.history

    def all_repositories(self) -> Iterator[Repository]:
        """All repositories of all users."""
        for account in self.accounts:
            yield from self.repositories_of(account)
