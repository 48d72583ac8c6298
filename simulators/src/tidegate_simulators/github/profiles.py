"""Accounts, repositories and events as JSON: the fields of GitHub that a collection may count."""

from base64 import urlsafe_b64encode
from typing import Any

from tidegate_simulators.draws import draw, pick
from tidegate_simulators.github.draws import HARBOURS, LANGUAGES, iso, prose, title
from tidegate_simulators.github.events import Event
from tidegate_simulators.github.repository import Account, Repository, Standing
from tidegate_simulators.github.world import World

Json = dict[str, Any]
API = "https://api.github.com"
"""What items call themselves. Not the simulator's address: the same item is then the same on every port."""
SITE = "https://github.com"
GHOST_ID = 10_137


def node_id(prefix: str, number: int) -> str:
    """The name of an object in GraphQL."""
    return f"{prefix}_{urlsafe_b64encode(number.to_bytes(8)).decode().rstrip('=')}"


def _simple(login: str, number: int) -> Json:
    return {
        "login": login,
        "id": number,
        "node_id": node_id("U", number),
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number}?v=4",
        "url": f"{API}/users/{login}",
        "html_url": f"{SITE}/{login}",
        "type": "User",
        "site_admin": False,
    }


def organization(world: World, account: Account) -> Json:
    """An organization's own page."""
    shown, listed = _simple(account.login, account.id), [r for r in world.repositories_of(account) if r.is_listed]
    named = {name: shown[name] for name in ("login", "id", "node_id", "avatar_url")}
    return named | {
        "url": f"{API}/orgs/{account.login}",
        "html_url": f"{SITE}/{account.login}",
        "type": "Organization",
        "name": account.login.title(),
        "description": None,
        "company": None,
        "blog": None,
        "location": None,
        "email": None,
        "twitter_username": None,
        "is_verified": False,
        "public_repos": len(listed),
        "followers": draw(account.key, 2) & 255,
        "created_at": iso(account.created),
        "updated_at": iso(account.touched),
    }


def team(account: Account, name: str, ordinal: int) -> Json:
    """A team of an organization."""
    number = account.id * 10 + ordinal
    return {
        "id": number,
        "node_id": node_id("T", number),
        "name": name,
        "slug": name.lower(),
        "description": None,
        "privacy": "closed",
        "permission": "pull",
        "parent": None,
    }


GHOST = _simple("ghost", GHOST_ID)


def simple_user(account: Account | None) -> Json:
    """An account inside another object; one that was deleted is the ghost."""
    if account is None:
        return GHOST
    kind = {"type": "Organization"} if account.is_organization else {}
    return _simple(account.login, account.id) | kind


def user(world: World, account: Account) -> Json:
    """Return a complete user profile."""
    listed = [r for r in world.repositories_of(account) if r.is_listed]
    bits = draw(account.key, 1)
    return simple_user(account) | {
        "name": f"{pick(HARBOURS, bits).title()} {pick(HARBOURS, bits >> 8).title()}",
        "company": pick((None, "@tidewater", "Estuary Ltd"), bits >> 16),
        "blog": "",
        "location": pick((None, "Rotterdam", "Busan", "Valparaíso", "Kraków"), bits >> 20),
        "email": None,
        "hireable": None,
        "bio": pick((None, prose(bits)), bits >> 24),
        "twitter_username": None,
        "public_repos": len(listed),
        "public_gists": bits >> 28 & 15,
        "followers": bits >> 32 & 1023,
        "following": bits >> 42 & 127,
        "created_at": iso(account.created),
        "updated_at": iso(account.touched),
    }


def repository(found: Repository) -> Json:
    """A repository as lists show it and as it is alone."""
    bits, is_open = draw(found.key, 41), found.view("open issues", lambda: _open_issues(found))
    return {
        "id": found.id,
        "node_id": node_id("R", found.id),
        "name": found.name,
        "full_name": found.full_name,
        "private": found.standing is Standing.PRIVATE,
        "owner": simple_user(found.owner),
        "html_url": f"{SITE}/{found.full_name}",
        "description": pick((None, title(bits)), bits),
        "fork": bits >> 4 & 7 == 0,
        "url": f"{API}/repos/{found.full_name}",
        "created_at": iso(found.start),
        "updated_at": iso(repository_updated_at(found)),
        "pushed_at": iso(_pushed_at(found)),
        "homepage": "",
        "size": len(found.history) * 3,
        "stargazers_count": found.stars,
        "watchers_count": found.stars,
        "language": pick(LANGUAGES, bits >> 8) if len(found.history) else None,
        "has_issues": found.has_issues,
        "has_projects": True,
        "has_wiki": True,
        "has_discussions": found.has_discussions,
        "forks_count": found.stars // 7,
        "archived": bits >> 16 & 31 == 0,
        "disabled": found.standing is Standing.BLOCKED,
        "open_issues_count": is_open,
        "license": None,
        "topics": [pick(HARBOURS, bits >> shift) for shift in (20, 26)],
        "visibility": "private" if found.standing is Standing.PRIVATE else "public",
        "forks": found.stars // 7,
        "open_issues": is_open,
        "watchers": found.stars,
        "default_branch": "main",
    }


def _open_issues(found: Repository) -> int:
    """Issues and pull requests together, as GitHub counts."""
    return sum(1 for number in found.threads.numbers() if not found.threads.closed[number])


def _pushed_at(found: Repository) -> int:
    generated = found.history.dates[-1] if found.history.dates else found.start
    return max((pushed.committed for pushed in found.history.pushed.values()), default=generated)


def repository_updated_at(found: Repository) -> int:
    """When what is said about the repository last changed."""
    return max(found.touched, _pushed_at(found))


def event(world: World, account: Account, happened: Event) -> Json:
    """One line of a timeline. A renamed repository appears in it under the name that it had."""
    if happened.repository_id is None:
        owned = [r for r in world.repositories_of(account) if r.standing is Standing.PUBLIC]
        where = pick(owned, happened.bits >> 8) if owned else None
    else:
        where = world.repository_by_id(happened.repository_id)
    name = f"{account.login}/deleted" if where is None else where.full_name
    if where is not None and where.former_names and happened.repository_id is None:
        name = where.former_names[0]
    number = where.id if where else account.id
    return {
        "id": str(happened.id),
        "type": happened.kind,
        "actor": {"id": account.id, "login": account.login, "url": f"{API}/users/{account.login}"},
        "repo": {"id": number, "name": name, "url": f"{API}/repos/{name}"},
        "payload": _payload(happened),
        "public": True,
        "created_at": iso(happened.at),
    }


def _payload(happened: Event) -> Json:
    bits = happened.bits
    match happened.kind:
        case "PushEvent":
            return {
                "push_id": bits >> 20,
                "ref": "refs/heads/main",
                "head": f"{bits:040x}",
                "before": f"{bits >> 1:040x}",
            }
        case "IssuesEvent" | "PullRequestEvent":
            return {"action": pick(("opened", "closed", "reopened"), bits >> 12), "number": 1 + (bits >> 16) % 500}
        case "IssueCommentEvent":
            return {"action": "created", "issue": {"number": 1 + (bits >> 16) % 500}}
        case "CreateEvent":
            return {"ref": None, "ref_type": "repository", "master_branch": "main"}
        case _:
            return {"action": "started"}
