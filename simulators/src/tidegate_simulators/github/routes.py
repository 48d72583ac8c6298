"""Which resource a path names, under whichever of its names."""

from dataclasses import dataclass
from urllib.parse import unquote

USER_PARTS: dict[tuple[str, ...], str] = {
    (): "user",
    ("repos",): "user.repos",
    ("events",): "user.events",
    ("events", "public"): "user.events",
    ("orgs",): "user.orgs",
}
ORGANIZATION_PARTS: dict[tuple[str, ...], str] = {
    (): "org",
    ("repos",): "org.repos",
    ("members",): "org.members",
    ("teams",): "org.teams",
}
REPOSITORY_PARTS: dict[tuple[str, ...], str] = {
    (): "repo",
    ("issues",): "repo.issues",
    ("issues", "comments"): "repo.issue_comments",
    ("issues", "*"): "repo.issue",
    ("issues", "*", "comments"): "repo.comments_of_issue",
    ("issues", "*", "timeline"): "repo.timeline",
    ("issues", "*", "reactions"): "repo.reactions",
    ("issues", "comments", "*", "reactions"): "repo.reactions",
    ("pulls",): "repo.pulls",
    ("pulls", "comments"): "repo.review_comments",
    ("pulls", "*"): "repo.pull",
    ("pulls", "*", "reviews"): "repo.pull_reviews",
    ("pulls", "*", "commits"): "repo.pull_commits",
    ("pulls", "*", "files"): "repo.pull_files",
    ("pulls", "*", "comments"): "repo.comments_of_pull",
    ("pulls", "*", "requested_reviewers"): "repo.requested_reviewers",
    ("pulls", "comments", "*", "reactions"): "repo.reactions",
    ("commits",): "repo.commits",
    ("commits", "*"): "repo.commit",
    ("contributors",): "repo.contributors",
    ("releases",): "repo.releases",
    ("tags",): "repo.tags",
    ("branches",): "repo.branches",
    ("labels",): "repo.labels",
    ("milestones",): "repo.milestones",
    ("forks",): "repo.forks",
    ("deployments",): "repo.deployments",
    ("issues", "events"): "repo.issue_events",
    ("actions", "runs"): "repo.workflow_runs",
    ("actions", "runs", "*", "jobs"): "repo.workflow_jobs",
    ("compare", "*"): "repo.comparison",
    ("stats", "code_frequency"): "repo.code_frequency",
    ("stargazers",): "repo.stargazers",
    ("subscribers",): "repo.subscribers",
    ("stats", "contributors"): "repo.stats",
}
FIXED: dict[tuple[str, tuple[str, ...]], str] = {
    ("GET", ("rate_limit",)): "rate_limit",
    ("GET", ("user",)): "self",
    ("GET", ("app",)): "app",
    ("GET", ("search", "issues")): "search.issues",
    ("GET", ("search", "code")): "search.code",
    ("GET", ("search", "repositories")): "search.repositories",
    ("POST", ("graphql",)): "graphql",
}
BUCKETS = {
    "graphql": "graphql",
    "search.issues": "search",
    "search.repositories": "search",
    "search.code": "code_search",
}
_PARTS = (USER_PARTS, ORGANIZATION_PARTS, REPOSITORY_PARTS)
ROUTES = frozenset({*FIXED.values(), *(route for parts in _PARTS for route in parts.values()), "app.token", "unknown"})


@dataclass(frozen=True, slots=True)
class Match:
    """The requested endpoint, its account, and the variable parts of the path."""

    route: str
    name: str = ""
    number: int | None = None
    """Of the account or repository, where the path names it by number."""
    rest: tuple[str, ...] = ()

    @property
    def bucket(self) -> str:
        """The allowance that a call of it is taken from."""
        return BUCKETS.get(self.route, "core")


def match(method: str, path: str) -> Match:
    """The resource that a path names; the route `unknown` if it names none."""
    parts: tuple[str, ...] = tuple(unquote(part) for part in path.strip("/").split("/"))
    fixed = FIXED.get((method, parts))
    if fixed is not None:
        return Match(fixed)
    first = parts[0]
    if first == "repos" and len(parts) >= 3:
        return _within(REPOSITORY_PARTS, parts[3:], name=f"{parts[1]}/{parts[2]}")
    if first == "repositories" and len(parts) >= 2 and parts[1].isdigit():
        return _within(REPOSITORY_PARTS, parts[2:], number=int(parts[1]))
    if first == "users" and len(parts) >= 2:
        return _within(USER_PARTS, parts[2:], name=parts[1])
    if first == "orgs" and len(parts) >= 2:
        return _within(ORGANIZATION_PARTS, parts[2:], name=parts[1])
    if first == "organizations" and len(parts) >= 2 and parts[1].isdigit():
        return _within(ORGANIZATION_PARTS, parts[2:], number=int(parts[1]))
    if first == "user" and len(parts) >= 2 and parts[1].isdigit():
        return _within(USER_PARTS, parts[2:], number=int(parts[1]))
    if (
        method == "POST"
        and len(parts) == 4
        and (first, parts[1], parts[3]) == ("app", "installations", "access_tokens")
    ):
        return Match("app.token", name=parts[2])
    return Match("unknown")


def _within(
    known: dict[tuple[str, ...], str], rest: tuple[str, ...], *, name: str = "", number: int | None = None
) -> Match:
    route = known.get(rest)
    for place in range(1, len(rest)):
        route = route or known.get((*rest[:place], "*", *rest[place + 1 :]))
    return Match(route or "unknown", name, number, rest)
