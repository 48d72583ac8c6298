"""Accounts, their repositories and their timelines; search."""

from collections.abc import Callable

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.github import profiles
from tidegate_simulators.github.answers import Answer, Refused, error, not_found, ok, refuse
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.config import Behaviour
from tidegate_simulators.github.events import MOST_EVENTS, Event
from tidegate_simulators.github.items import Items
from tidegate_simulators.github.pages import Place, Window, numbered_page
from tidegate_simulators.github.repository import Account, Repository, Standing
from tidegate_simulators.github.world import World

MOST_SEARCH_RESULTS = 1_000
TOO_FAR = (
    "In order to keep the API fast for everyone, pagination is limited for this resource. Check the rel=last link "
    "relation in the Link response header to see how far back you can traverse."
)


class UserResources:
    """Answers what is asked about accounts."""

    def __init__(self, world: World, items: Items, behaviour: Behaviour) -> None:
        self._world, self._items, self._behaviour = world, items, behaviour
        self._searches = 0
        self.by_route: dict[str, Callable[[Call], Answer]] = {
            "org": self._organization,
            "org.repos": lambda call: self._listed(call, self._find_organization(call), "created"),
            "org.members": self._members,
            "org.teams": self._teams,
            "search.repositories": self._search_repositories,
            "self": self._self,
            "user": self._user,
            "user.repos": self._repositories,
            "user.events": self._events,
            "user.orgs": lambda call: numbered_page(
                [], lambda entry: entry, self._place(call, self.find(call), "orgs")
            ),
            "search.issues": self._search,
            "search.code": lambda _call: ok({"total_count": 0, "incomplete_results": False, "items": []}),
        }

    def find(self, call: Call) -> Account:
        """The requested account; a former login is not found."""
        wanted = call.match
        by_name = wanted.number is None
        found = self._world.account(wanted.name) if by_name else self._world.account_by_id(wanted.number or 0)
        if found is None:
            raise not_found()
        return found

    def _self(self, call: Call) -> Answer:
        match call.caller.owner.kind:
            case "user":
                account = self._world.account_by_id(call.caller.owner.number)
                assert account is not None
                return ok(
                    profiles.user(self._world, account),
                    headers={"x-oauth-scopes": ", ".join(sorted(call.caller.scopes or ()))},
                )
            case "installation":
                raise refuse(403, "Resource not accessible by integration")
            case _:
                raise refuse(401, "Requires authentication")

    def _user(self, call: Call) -> Answer:
        found = self.find(call)
        return ok(profiles.user(self._world, found), last_modified=found.touched)

    def _find_organization(self, call: Call) -> Account:
        found = self.find(call)
        if not found.is_organization:
            raise not_found()
        require_sign_on(call, found)
        return found

    def _organization(self, call: Call) -> Answer:
        found = self._find_organization(call)
        return ok(profiles.organization(self._world, found), last_modified=found.touched)

    def _members(self, call: Call) -> Answer:
        """Return the members: the first users that are not organizations."""
        found = self._find_organization(call)
        people = [account for account in self._world.accounts if not account.is_organization][: 3 + found.id % 3]
        return numbered_page(people, profiles.simple_user, self._place(call, found, "members"))

    def _teams(self, call: Call) -> Answer:
        """Only for tokens that may read organizations."""
        found = self._find_organization(call)
        require_scope(call, "read:org", "admin:org", "write:org")
        teams = [profiles.team(found, name, ordinal) for ordinal, name in enumerate(("Harbour", "Tide"))]
        return numbered_page(teams, lambda team: team, self._place(call, found, "teams"))

    def _search_repositories(self, call: Call) -> Answer:
        """Those of which all words are true: `topic:`, `language:`, `user:`, `org:`, or a part of the name."""
        words = call.query.get("q", "").split()
        if not words:
            raise refuse(422, "Validation Failed", errors=[{"code": "missing", "field": "q"}])
        if Window.of(call.query).start >= MOST_SEARCH_RESULTS:
            raise refuse(422, "Only the first 1000 search results are available")
        everything = [r for r in self._world.all_repositories() if r.standing is Standing.PUBLIC]
        found = [r for r in everything if all(_is_found(profiles.repository(r), word) for word in words)]
        found.sort(key=lambda r: (-r.stars, r.id))
        place = Place(f"{call.origin}/search/repositories", call.query)
        page = numbered_page(found, profiles.repository, place, most=MOST_SEARCH_RESULTS)
        self._searches += 1
        incomplete = fraction(draw(self._searches, 81)) < self._behaviour.incomplete_searches
        head = f'{{"total_count":{len(found)},"incomplete_results":{str(incomplete).lower()},"items":'
        return Answer(200, head.encode() + page.body + b"}", page.headers)

    def _repositories(self, call: Call) -> Answer:
        return self._listed(call, self.find(call), "full_name")

    def _listed(self, call: Call, found: Account, usual: str) -> Answer:
        sort = call.query.get("sort", usual)
        keys: dict[str, Callable[[Repository], object]] = {
            "full_name": lambda r: r.full_name.lower(),
            "created": lambda r: (r.start, r.id),
            "updated": lambda r: (profiles.repository_updated_at(r), r.id),
            "pushed": lambda r: (profiles.repository_updated_at(r), r.id),
        }
        if sort not in keys:
            raise refuse(422, "Validation Failed", errors=[{"code": "invalid", "field": "sort"}])
        direction = call.query.get("direction", "asc" if sort == "full_name" else "desc")
        listed = [r for r in self._world.repositories_of(found) if r.is_listed]
        listed.sort(key=keys[sort], reverse=direction == "desc")  # pyright: ignore[reportArgumentType, reportCallIssue]
        return numbered_page(listed, profiles.repository, self._place(call, found, "repos"))

    def _events(self, call: Call) -> Answer:
        found, window = self.find(call), Window.of(call.query)
        if window.start >= MOST_EVENTS:
            raise refuse(422, TOO_FAR)

        def render(happened: Event) -> profiles.Json:
            return profiles.event(self._world, found, happened)

        answer = numbered_page(self.events_of(found), render, self._place(call, found, "events"))
        answer.headers = {**answer.headers, "x-poll-interval": str(self._behaviour.poll_interval_s)}
        return answer

    def events_of(self, account: Account) -> list[Event]:
        """What a timeline shows now."""
        return self._world.events_of(account).visible(self._world.now(), self._behaviour.events_late_s)

    def _place(self, call: Call, found: Account, what: str) -> Place:
        """Links name an account by its number."""
        return Place(f"{call.origin}/user/{found.id}/{what}", call.query)

    def _search(self, call: Call) -> Answer:
        """Issues and pull requests by `repo:`, `user:`, `is:` and `state:`; at most a thousand can be seen."""
        words = dict(w.split(":", 1) for w in call.query.get("q", "").split() if ":" in w)
        if not words:
            raise refuse(422, "Validation Failed", errors=[{"code": "missing", "field": "q"}])
        window = Window.of(call.query)
        if window.start >= MOST_SEARCH_RESULTS:
            raise refuse(422, "Only the first 1000 search results are available")
        found = [(r, n) for r in self._searched(words) for n in _wanted(r, words)]
        found.sort(key=lambda entry: (-entry[0].threads.created[entry[1]], entry[0].id))
        page = numbered_page(
            found,
            lambda entry: self._items.issue(*entry),
            Place(f"{call.origin}/search/issues", call.query),
            most=MOST_SEARCH_RESULTS,
        )
        self._searches += 1
        incomplete = fraction(draw(self._searches, 81)) < self._behaviour.incomplete_searches
        head = f'{{"total_count":{len(found)},"incomplete_results":{str(incomplete).lower()},"items":'
        return Answer(200, head.encode() + page.body + b"}", page.headers)

    def _searched(self, words: dict[str, str]) -> list[Repository]:
        if "repo" in words:
            found = self._world.repository(words["repo"])
            candidates = [found] if found else []
        else:
            account = self._world.account(words.get("user", ""))
            candidates = self._world.repositories_of(account) if account else []
        return [repository for repository in candidates if repository.standing is Standing.PUBLIC]


def require_sign_on(call: Call, organization: Account) -> None:
    """403 for a token that was not authorized for the single sign-on of an organization that requires it."""
    if organization.requires_sign_on and not call.caller.is_signed_on:
        url = f"https://github.com/orgs/{organization.login}/sso?authorization_request=A"
        message = "Resource protected by organization SAML enforcement. You must grant your token access."
        refused = error(403, message, headers={"x-github-sso": f"required; url={url}"})
        raise Refused(refused)


def require_scope(call: Call, *accepted: str) -> None:
    """403 for a classic token that has none of the accepted scopes."""
    scopes = call.caller.scopes
    if scopes is None or scopes & set(accepted):
        return
    headers = {"x-oauth-scopes": ", ".join(sorted(scopes)), "x-accepted-oauth-scopes": ", ".join(sorted(accepted))}
    message = f'This API operation needs the "{accepted[0]}" scope.'
    raise Refused(error(403, message, headers=headers))


def _is_found(shown: profiles.Json, word: str) -> bool:
    name, has_colon, value = word.lower().partition(":")
    match name if has_colon else "":
        case "topic":
            return value in shown["topics"]
        case "language":
            return (shown["language"] or "").lower() == value
        case "user" | "org":
            return shown["owner"]["login"].lower() == value
        case _:
            return word.lower() in shown["name"].lower()


def _wanted(repository: Repository, words: dict[str, str]) -> list[int]:
    threads = repository.threads
    numbers = threads.numbers()
    if "is" in words:
        numbers = [n for n in numbers if bool(threads.kinds[n]) == (words["is"] == "pr")]
    if "state" in words:
        numbers = [n for n in numbers if bool(threads.closed[n]) == (words["state"] == "closed")]
    return numbers
