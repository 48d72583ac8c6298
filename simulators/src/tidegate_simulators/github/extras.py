"""Further lists of a repository: releases, tags, branches, labels, milestones, forks, contributors, deployments,
workflow runs, events of issues, stargazers, and discussions, which only GraphQL shows. They have no part in
`updated_at`: GitHub does not touch an issue for them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate_simulators.draws import draw, pick
from tidegate_simulators.github import profiles
from tidegate_simulators.github.draws import DAY_S, HARBOURS, iso, title
from tidegate_simulators.github.repository import Account, Repository
from tidegate_simulators.github.world import World

Json = dict[str, Any]
DISCUSSIONS = "discussions"
_LONG_TALK = 23
"""Comments of a few discussions: more than fit on a page of a collector that reads many discussions at once."""
OLDEST_FIRST = frozenset({"tags", "branches", "labels", "milestones", "forks", "contributors", "stargazers"})
"""Lists that show the oldest entry first; the others show the newest first."""

MOST_REPLIES = 20
"""A comment of a discussion has fewer replies than this."""


@dataclass
class Entry:
    """One item of a list."""

    number: int
    created: int
    updated: int
    is_open: bool = False
    """A workflow run in progress, or an open milestone."""
    added: int = 0
    """Comments of a discussion that were written since it was generated."""

    @property
    def talk(self) -> int:
        """How many comments a discussion has, apart from replies to them."""
        generated = _LONG_TALK if self.number % 40 == 13 else 0 if self.number % 7 == 2 else 1 + self.number % 3
        return generated + self.added

    def replies(self, comment: int) -> int:
        """How many replies a comment of a discussion has."""
        return _LONG_TALK // 2 + 1 if self.number % 40 == 13 and comment == 1 else comment % 2


@dataclass
class ExtraLists:
    """The lists of one repository."""

    entries: dict[str, list[Entry]] = field(default_factory=dict[str, list[Entry]])
    last: int = 0


class Extras:
    """All further lists, generated when first asked for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of: dict[int, ExtraLists] = {}

    def of(self, found: Repository, name: str) -> list[Entry]:
        """The entries of a list, the oldest first."""
        lists = self._of.setdefault(found.id, ExtraLists())
        if name not in lists.entries:
            shape, first = self._world.shape, found.start
            count = shape.discussions if name == DISCUSSIONS else shape.extras
            lists.entries[name] = [Entry(i + 1, first + i * DAY_S, first + i * DAY_S) for i in range(count)]
            lists.last = max(lists.last, count)
        return lists.entries[name]

    def add(self, found: Repository, name: str, *, is_open: bool = False) -> int:
        """A new entry; its number."""
        entries, now = self.of(found, name), self._world.now()
        number = max((entry.number for entry in entries), default=0) + 1
        entries.append(Entry(number, now, now, is_open))
        found.changed()
        self._report(found, name, entries[-1], "created")
        return number

    def change(self, found: Repository, name: str, number: int) -> None:
        """An entry is changed: a release is edited, a workflow run completes."""
        entry = next(entry for entry in self.of(found, name) if entry.number == number)
        before = _RENDERED[name](self._world, found, entry)
        entry.updated, entry.is_open = self._world.now(), False
        found.changed()
        self._report(found, name, entry, "edited", before)

    def remove(self, found: Repository, name: str, number: int) -> None:
        """An entry is gone."""
        entries = self.of(found, name)
        removed = [entry for entry in entries if entry.number == number]
        entries[:] = [entry for entry in entries if entry.number != number]
        found.changed()
        for entry in removed:
            self._report(found, name, entry, "deleted")

    def _report(self, found: Repository, name: str, entry: Entry, action: str, before: Json | None = None) -> None:
        """The payload of the webhook for a change, if GitHub sends one."""
        event = _EVENTS.get(name)
        if event is None:
            return
        shown = _RENDERED[name](self._world, found, entry)
        changes = {} if before is None else {key: {"from": before.get(key)} for key in _differing(before, shown)}
        match event:
            case "fork":
                if action == "created":
                    self._world.report("fork", None, found, forkee={**shown, "public": True})
            case "star":
                if shown["user"] is not None:
                    at = None if action == "deleted" else shown["starred_at"]
                    self._world.report("star", action, found, starred_at=at, sender=shown["user"])
            case _:
                parts = {event: shown, **({} if before is None else {"changes": changes})}
                self._world.report(event, action, found, **parts)

    def jobs_of(self, found: Repository, run_id: str) -> list[Json] | None:
        """The jobs of a workflow run; None where there is no such run."""
        runs = {str(_id(found, entry, "workflow_run")): entry for entry in self.of(found, "workflow_runs")}
        entry = runs.get(run_id)
        if entry is None:
            return None
        return [_workflow_job(found, entry, n) for n in range(entry.number % 3)]

    def commits_of(self, found: Repository, head: str) -> list[Json] | None:
        """The commits of a branch that the default branch lacks; None where no branch has this head."""
        heads = {_branch(self._world, found, entry)["commit"]["sha"]: entry for entry in self.of(found, "branches")}
        entry = heads.get(head)
        if entry is None:
            return None
        count = 0 if entry.number == 1 else entry.number % 3
        shas = [f"{draw(found.key, entry.number, entry.updated, n):040x}" for n in range(1, count)]
        return [_branch_commit(sha, entry) for sha in [*shas, head][:count]]

    def discussion(self, found: Repository, number: int) -> Json:
        """A discussion in the words of the REST API."""
        return _discussion(self._world, found, self._discussion(found, number))

    def discuss(self, found: Repository, number: int) -> None:
        """A new comment in a discussion."""
        entry = self._discussion(found, number)
        entry.updated, entry.added = self._world.now(), entry.added + 1
        found.changed()

    def discussion_comment(self, found: Repository, number: int, comment: int, reply: int = 0) -> Json:
        """A comment of a discussion, or a reply to it, in the words of the REST API."""
        return _discussion_comment(self._world, found, self._discussion(found, number), comment, reply)

    def talk_of(self, found: Repository, number: int) -> list[list[int]]:
        """The numbers of replies, 0 for the comment itself, for each comment of a discussion."""
        entry = self._discussion(found, number)
        return [list(range(entry.replies(comment) + 1)) for comment in range(1, entry.talk + 1)]

    def _discussion(self, found: Repository, number: int) -> Entry:
        return next(entry for entry in self.of(found, DISCUSSIONS) if entry.number == number)

    def listed(self, found: Repository, name: str) -> list[Json]:
        """A list as it is shown."""
        entries = self.of(found, name)
        shown = [_RENDERED[name](self._world, found, entry) for entry in entries]
        return shown if name in OLDEST_FIRST else shown[::-1]


def _id(found: Repository, entry: Entry, name: str) -> int:
    return found.id * 1_000_000 + sum(map(ord, name)) * 100 % 900_000 + entry.number


def _someone(world: World, found: Repository, entry: Entry) -> Account | None:
    return world.contributor(draw(found.key, entry.number, 151), found.owner)


def _sha(found: Repository, entry: Entry) -> str:
    return f"{draw(found.key, entry.number, 152):040x}"


def _times(entry: Entry) -> Json:
    return {"created_at": iso(entry.created), "updated_at": iso(entry.updated)}


def _release(world: World, found: Repository, entry: Entry) -> Json:
    return {
        "id": _id(found, entry, "release"),
        "tag_name": f"v{entry.number}.0",
        "target_commitish": "main",
        "name": None if entry.number % 5 == 0 else f"Version {entry.number}",
        "draft": False,
        "prerelease": entry.number % 3 == 0,
        "author": profiles.simple_user(_someone(world, found, entry)),
        "assets": [],
        "body": None if entry.number % 4 == 0 else title(draw(found.key, entry.number, entry.updated)),
        **_times(entry),
        "published_at": iso(entry.created),
        "html_url": f"{profiles.SITE}/{found.full_name}/releases/tag/v{entry.number}.0",
    }


def _tag(_world: World, found: Repository, entry: Entry) -> Json:
    return {"name": f"v{entry.number}.0", "commit": {"sha": _sha(found, entry)}, "node_id": f"T{entry.number}"}


def _branch(_world: World, found: Repository, entry: Entry) -> Json:
    name = "main" if entry.number == 1 else f"topic/{pick(HARBOURS, entry.number)}-{entry.number}"
    head = f"{draw(found.key, entry.number, entry.updated):040x}"
    return {"name": name, "commit": {"sha": head}, "protected": entry.number == 1}


def _label(_world: World, found: Repository, entry: Entry) -> Json:
    return {
        "id": _id(found, entry, "label"),
        "name": f"{pick(HARBOURS, entry.number)} {entry.number}",
        "color": f"{draw(found.key, entry.updated) & 0xFFFFFF:06x}",
        "default": entry.number == 1,
        **({} if entry.number % 4 == 0 else {"description": None}),
    }


def _milestone(world: World, found: Repository, entry: Entry) -> Json:
    return {
        "id": _id(found, entry, "milestone"),
        "number": entry.number,
        "title": f"Milestone {entry.number}",
        "state": "open" if entry.is_open else "closed",
        "description": None,
        "creator": profiles.simple_user(_someone(world, found, entry)),
        "open_issues": 0,
        "closed_issues": entry.number,
        "due_on": None,
        "closed_at": None if entry.is_open else iso(entry.updated),
        **_times(entry),
    }


def _fork(world: World, found: Repository, entry: Entry) -> Json:
    owner = profiles.simple_user(_someone(world, found, entry))
    number, name = _id(found, entry, "fork"), f"{found.name}-{entry.number}"
    full_name = f"{owner['login']}/{name}"
    times = {**_times(entry), "pushed_at": iso(entry.updated)}
    return {"id": number, "name": name, "full_name": full_name, "owner": owner, "fork": True, **times}


def _contributor(_world: World, _found: Repository, entry: Entry) -> Json:
    login = f"{pick(HARBOURS, entry.number)}-{entry.number}"
    return {"id": 50_000_000 + entry.number, "login": login, "type": "User", "contributions": entry.updated % 997}


def _stargazer(_world: World, _found: Repository, entry: Entry) -> Json:
    """The account of some was deleted."""
    login = f"{pick(HARBOURS, entry.number)}-{entry.number}"
    user = None if entry.number % 7 == 0 else {"id": 60_000_000 + entry.number, "login": login, "type": "User"}
    return {"starred_at": iso(entry.created), "user": user}


def _deployment(world: World, found: Repository, entry: Entry) -> Json:
    return {
        "id": _id(found, entry, "deployment"),
        "sha": _sha(found, entry),
        "ref": "main",
        "task": "deploy",
        "environment": pick(("production", "staging"), entry.number),
        "description": None,
        "creator": profiles.simple_user(_someone(world, found, entry)),
        "production_environment": entry.number % 2 == 0,
        "transient_environment": False,
        **_times(entry),
    }


def _workflow_run(world: World, found: Repository, entry: Entry) -> Json:
    return {
        "id": _id(found, entry, "workflow_run"),
        "name": "tests",
        "run_number": entry.number,
        "run_attempt": 1,
        "event": "push",
        "status": "in_progress" if entry.is_open else "completed",
        "conclusion": None if entry.is_open else "success",
        "workflow_id": found.id,
        "head_branch": "main",
        "head_sha": _sha(found, entry),
        "actor": profiles.simple_user(_someone(world, found, entry)),
        "run_started_at": iso(entry.created),
        **_times(entry),
    }


def _workflow_job(found: Repository, entry: Entry, ordinal: int) -> Json:
    is_open = entry.is_open and ordinal == 0
    return {
        "id": _id(found, entry, "workflow_job") * 10 + ordinal,
        "run_id": _id(found, entry, "workflow_run"),
        "run_attempt": 1,
        "name": f"tests ({ordinal})",
        "status": "in_progress" if is_open else "completed",
        "conclusion": None if is_open else "success",
        "runner_name": None,
        "labels": ["ubuntu-latest"],
        "started_at": iso(entry.created),
        "completed_at": None if is_open else iso(entry.updated),
        "steps": [],
    }


def _branch_commit(sha: str, entry: Entry) -> Json:
    """A commit with an address of no account."""
    by = {"name": "unknown", "email": "unknown@example.org", "date": iso(entry.updated)}
    message = {"author": by, "committer": by, "message": f"Work on branch {entry.number}"}
    return {"sha": sha, "commit": message, "author": None, "committer": None, "parents": []}


def _issue_event(world: World, found: Repository, entry: Entry) -> Json:
    """The actor of some was deleted, and so was the issue of some."""
    return {
        "id": _id(found, entry, "issue_event"),
        "event": pick(("labeled", "closed", "assigned", "renamed"), entry.number),
        "actor": None if entry.number % 9 == 0 else profiles.simple_user(_someone(world, found, entry)),
        "issue": None if entry.number % 11 == 0 else {"number": entry.number},
        "commit_id": None,
        "created_at": iso(entry.created),
    }


def _discussion(world: World, found: Repository, entry: Entry) -> Json:
    """In the words of the REST API. The author of some was deleted; every third question has an answer."""
    number = _id(found, entry, "discussion") % _LARGEST_INT
    at, url = iso(entry.updated), f"{profiles.SITE}/{found.full_name}/discussions/{entry.number}"
    author = _someone(world, found, entry)
    is_question, is_answered = entry.number % 2 == 0, entry.number % 6 == 0 and entry.talk > 0
    answer = _discussion_comment(world, found, entry, 1)
    return {
        "id": number,
        "node_id": profiles.node_id("D", discussion_key(found, entry.number)),
        "number": entry.number,
        "title": title(draw(found.key, entry.number, 153)),
        "body": title(draw(found.key, entry.number, entry.updated)),
        "html_url": url,
        **_times(entry),
        "closed": entry.number % 5 == 0,
        "closed_at": at if entry.number % 5 == 0 else None,
        "state_reason": "RESOLVED" if entry.number % 5 == 0 else None,
        "locked": False,
        "active_lock_reason": None,
        "author_association": "NONE",
        "user": None if author is None or entry.number % 7 == 0 else {"login": author.login, "id": author.id},
        "category": {
            "node_id": f"DIC_{int(is_question)}",
            "name": "Q&A" if is_question else "Ideas",
            "slug": "q-a" if is_question else "ideas",
            "is_answerable": is_question,
        },
        "is_answered": is_answered if is_question else None,
        "answer_chosen_at": at if is_answered else None,
        "answer_chosen_by": {"login": found.owner.login} if is_answered else None,
        "answer": {"id": answer["id"], "html_url": answer["html_url"]} if is_answered else None,
        "upvotes": entry.number % 4,
        "comments": {"total_count": entry.talk},
    }


def discussion_key(found: Repository, number: int) -> int:
    """The number behind the name of a discussion in GraphQL: its repository, and its own number."""
    return found.id * 1_000_000 + number


def _comment_number(found: Repository, entry: Entry, code: int) -> int:
    """The id of a comment, in 32 bits as GraphQL has it, and different in each repository."""
    return 1 + draw(found.key, entry.number, code, 156) % _LARGEST_INT


def _discussion_comment(world: World, found: Repository, entry: Entry, comment: int, reply: int = 0) -> Json:
    """A comment, or a reply to it. The author of some was deleted."""
    code = comment * MOST_REPLIES + reply
    number = _comment_number(found, entry, code)
    author = world.contributor(draw(found.key, entry.number, code, 154), found.owner)
    at = iso(entry.created if comment <= entry.talk - entry.added else entry.updated)
    return {
        "id": number,
        "node_id": profiles.node_id("DC", discussion_key(found, entry.number) * 1_000 + code),
        "discussion_number": entry.number,
        "reply_to_id": _comment_number(found, entry, code - reply) if reply else None,
        "body": title(draw(found.key, entry.number, code, 155)),
        "html_url": f"{profiles.SITE}/{found.full_name}/discussions/{entry.number}#discussioncomment-{number}",
        "created_at": at,
        "updated_at": at,
        "user": None if author is None or code % 11 == 0 else {"login": author.login, "id": author.id},
        "author_association": "NONE",
        "is_answer": entry.number % 6 == 0 and comment == 1 and not reply,
        "upvotes": code % 4,
    }


_LARGEST_INT = 2**31 - 1
_RENDERED: Mapping[str, Callable[[World, Repository, Entry], Json]] = {
    "releases": _release,
    "tags": _tag,
    "branches": _branch,
    "labels": _label,
    "milestones": _milestone,
    "forks": _fork,
    "contributors": _contributor,
    "stargazers": _stargazer,
    "deployments": _deployment,
    "workflow_runs": _workflow_run,
    "issue_events": _issue_event,
    DISCUSSIONS: _discussion,
}
_EVENTS = {
    "releases": "release",
    "labels": "label",
    "milestones": "milestone",
    "forks": "fork",
    "stargazers": "star",
}
"""The event of a change in each list that webhooks cover."""


def _differing(one: Json, other: Json) -> list[str]:
    return [key for key in one if key != "updated_at" and one[key] != other.get(key)]


NAMES = tuple(name for name in _RENDERED if name != DISCUSSIONS)
"""The lists of the REST API."""
