"""The page of GitHub's kinds: how each is read, what it costs, and what a later run cannot see."""

from collections.abc import Iterator, Mapping

from reference.markdown import MADE, code, page, table
from tidegate.systems.github.kinds import REGISTRY, Kind, KindGroup, ListOrder

_HEAD = f"""# What is collected from GitHub

{MADE}

Each kind is one list of a user, an organization, a repository, or an item. `--kinds` selects kinds by these names, or
by a group: `essential` (the default, see the setting `github.kinds`), `conversations` (with comments and reviews) or
`all` (every kind but those that are selected by name only).

The columns of calls are those of one list of n items for one repository, and count what GitHub counts: an answer 304
costs nothing. Tests count them on the simulated GitHub.
"""
_COSTS: Mapping[ListOrder, tuple[str, str, str, str]] = {
    ListOrder.PROFILE: ("1, and n/100 for the list of repositories", "0", "pages that changed", "-"),
    ListOrder.TIMELINE: ("n/100, at most 3", "0", "pages with new events", "events older than 30 days or the last 300"),
    ListOrder.UPDATED: (
        "n/100",
        "0",
        "pages with changed items",
        "deletions in lists of several pages, before a full run",
    ),
    ListOrder.HISTORY: ("n/100", "0", "pages down to the former head", "-"),
    ListOrder.PULL_REQUESTS: (
        "n/100 GraphQL points (n pull requests)",
        "0",
        "1 point for each 100 changed pull requests",
        "deleted reviews, before a full run",
    ),
    ListOrder.CONNECTION: (
        "n/100 GraphQL points, at least 1 where it is enabled",
        "1 GraphQL point where it is enabled",
        "1 GraphQL point for each 100 changed items",
        "deletions, before a full run",
    ),
    ListOrder.PAGES: (
        "n/100",
        "0",
        "pages that changed; all where the newest comes first",
        "deletions in lists of several pages, before a full run",
    ),
    ListOrder.NEWEST: (
        "n/100",
        "0",
        "pages with new items, or down to the oldest that was unsettled",
        "changes of settled items and deletions, before a full run",
    ),
    ListOrder.DETAILS: (
        "1 for each item, and 1 for each further 100 details of it",
        "0",
        "1 for each new or changed item",
        "deletions; details of items that were collected before the kind was selected, before a full run",
    ),
    ListOrder.BATCHES: (
        "5 GraphQL points for each 50 items, and 1 for each further 50 details of one of them",
        "0",
        "as at first, for new or changed items",
        "deletions; changes that leave the item unchanged; details of items that were collected before the kind was "
        "selected, before a full run",
    ),
}
_SINGLE = ("1, and 1 for each answer that it is being computed", "0", "1", "-")


def describe_entities() -> str:
    """The page, as Markdown."""
    return page(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    head = ("kind", "group", "documents", "read as", "first run", "unchanged", "changed", "not seen incrementally")
    yield from table(head, (_row(declared) for declared in REGISTRY.values()))


def _row(declared: Kind) -> list[str]:
    costs = _SINGLE if declared.order is ListOrder.PAGES and declared.is_single else _COSTS[declared.order]
    group = "by name" if declared.group is KindGroup.NAMED else declared.group.value
    document = code(declared.document) if declared.document else "`user`, `organization`, `repository`"
    return [code(declared.name), group, document, declared.order.value, *costs]
