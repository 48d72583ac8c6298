"""Everything under `/repos/{owner}/{name}` and `/repositories/{id}`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidegate_simulators.draws import draw
from tidegate_simulators.github import profiles
from tidegate_simulators.github.answers import Answer, Refused, error, not_found, ok, refuse
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.comments import Comments
from tidegate_simulators.github.commits import Ref
from tidegate_simulators.github.config import Behaviour
from tidegate_simulators.github.draws import from_iso
from tidegate_simulators.github.extras import Extras
from tidegate_simulators.github.items import Items, pull_commits, pull_files
from tidegate_simulators.github.pages import Ordered, Place, cursor_page, numbered_page
from tidegate_simulators.github.repository import Repository, Standing
from tidegate_simulators.github.user_resources import require_sign_on
from tidegate_simulators.github.world import World

MOST_PULL_COMMITS = 250
MOST_PULL_FILES = 3_000


class RepositoryResources:
    """Answers what is asked about one repository."""

    def __init__(self, world: World, items: Items, behaviour: Behaviour, extras: Extras) -> None:
        self._world, self._items, self._behaviour, self._extras = world, items, behaviour, extras
        self._computed: set[tuple[int, int]] = set()
        self.by_route: dict[str, Callable[[Call, Repository], Answer]] = {
            "repo": self._repository,
            "repo.issues": self._issues,
            "repo.issue": self._issue,
            "repo.issue_comments": self._issue_comments,
            "repo.comments_of_issue": self._comments_of_issue,
            "repo.comments_of_pull": self._comments_of_pull,
            "repo.reactions": self._nothing,
            "repo.requested_reviewers": lambda _call, _found: ok({"users": [], "teams": []}),
            "repo.timeline": self._timeline,
            "repo.workflow_jobs": self._workflow_jobs,
            "repo.comparison": self._comparison,
            "repo.pulls": self._pulls,
            "repo.pull": self._pull,
            "repo.review_comments": self._review_comments,
            "repo.pull_reviews": self._pull_reviews,
            "repo.pull_commits": self._pull_commits,
            "repo.pull_files": self._pull_files,
            "repo.commits": self._commits,
            "repo.commit": self._commit,
            "repo.contributors": self._contributors,
            "repo.stargazers": self._stargazers,
            "repo.subscribers": self._restricted,
            "repo.stats": self._statistics,
            "repo.code_frequency": self._code_frequency,
        }
        for name in ("releases", "tags", "branches", "labels", "milestones", "forks", "deployments", "issue_events"):
            self.by_route[f"repo.{name}"] = partial(self._extra, name)
        self.by_route["repo.workflow_runs"] = self._workflow_runs

    def find(self, call: Call) -> Repository:
        """The repository that is asked for; a former name is redirected, private and blocked ones are refused."""
        wanted = call.match
        found = (
            self._world.repository(wanted.name)
            if wanted.number is None
            else self._world.repository_by_id(wanted.number)
        )
        if found is None and (moved := self._world.renamed(wanted.name)):
            raise _moved(call, f"/repositories/{moved.id}", call.match.rest)
        if found is None or found.standing in (Standing.PRIVATE, Standing.DELETED):
            raise not_found()
        if found.standing is not Standing.PUBLIC:
            raise _blocked(found)
        require_sign_on(call, found.owner)
        return found

    def _repository(self, _call: Call, found: Repository) -> Answer:
        return ok(profiles.repository(found), last_modified=profiles.repository_updated_at(found))

    def _issues(self, call: Call, found: Repository) -> Answer:
        if not found.has_issues:
            raise refuse(410, "Issues are disabled for this repo")
        return cursor_page(
            threads_in_order(found, call, pulls_only=False),
            lambda number: self._items.issue(found, number),
            _place(call, found),
            largest_offset=self._behaviour.largest_page_offset,
            cursors_end=not self._behaviour.cursors_reach_everything,
        )

    def _pulls(self, call: Call, found: Repository) -> Answer:
        entries = threads_in_order(found, call, pulls_only=True)
        return numbered_page(
            entries.part(0, len(entries)), lambda number: self._items.pull(found, number), _place(call, found)
        )

    def _issue(self, call: Call, found: Repository) -> Answer:
        number = _number(call)
        gone = found.threads.gone.get(number)
        if gone is not None and gone.repository_id is not None:
            raise _moved(call, f"/repositories/{gone.repository_id}", ("issues", str(gone.number)))
        if gone is not None:
            raise refuse(410, "This issue was deleted")
        if not found.threads.has(number):
            raise not_found()
        return ok(self._items.issue(found, number), last_modified=found.threads.updated[number])

    def _pull(self, call: Call, found: Repository) -> Answer:
        number = self._pull_number(call, found)
        return ok(self._items.whole_pull(found, number), last_modified=found.threads.updated[number])

    def _pull_number(self, call: Call, found: Repository) -> int:
        number = _number(call)
        if not found.threads.has(number) or not found.threads.kinds[number]:
            raise not_found()
        return number

    def _issue_comments(self, call: Call, found: Repository) -> Answer:
        return self._said(call, found, found.comments, self._items.comment)

    def _review_comments(self, call: Call, found: Repository) -> Answer:
        return self._said(call, found, found.review_comments, self._items.review_comment)

    def _comments_of_issue(self, call: Call, found: Repository) -> Answer:
        number = _number(call)
        if not found.threads.has(number):
            raise not_found()
        entries = found.comments.of(number)
        return numbered_page(entries, lambda ordinal: self._items.comment(found, ordinal), _place(call, found))

    def _comments_of_pull(self, call: Call, found: Repository) -> Answer:
        entries = found.review_comments.of(self._pull_number(call, found))
        return numbered_page(entries, lambda ordinal: self._items.review_comment(found, ordinal), _place(call, found))

    def _nothing(self, call: Call, found: Repository) -> Answer:
        """An empty list: nothing has a reaction."""
        return numbered_page([], lambda entry: entry, _place(call, found))

    def _timeline(self, call: Call, found: Repository) -> Answer:
        """The history of an issue or pull request, the oldest entry first."""
        number = _number(call)
        if found.threads.gone.get(number) is not None:
            raise refuse(410, "This issue was deleted")
        if not found.threads.has(number):
            raise not_found()
        return numbered_page(self._items.timeline(found, number), lambda entry: entry, _place(call, found))

    def _workflow_jobs(self, call: Call, found: Repository) -> Answer:
        """The jobs of one run; a run without logs has none."""
        jobs = self._extras.jobs_of(found, call.match.rest[2])
        if jobs is None:
            raise not_found()
        page = numbered_page(jobs, lambda entry: entry, _place(call, found))
        head = f'{{"total_count":{len(jobs)},"jobs":'
        return Answer(200, head.encode() + page.body + b"}", page.headers)

    def _comparison(self, call: Call, found: Repository) -> Answer:
        """The commits of a branch that the base lacks, the oldest first."""
        base, _, head = call.match.rest[1].partition("...")
        commits = self._extras.commits_of(found, head) if base == "main" else None
        if commits is None:
            raise not_found()
        page = numbered_page(commits, lambda entry: entry, _place(call, found))
        words = f'{{"status":"{"ahead" if commits else "identical"}","ahead_by":{len(commits)},"behind_by":0,"commits":'
        return Answer(200, words.encode() + page.body + b"}", page.headers)

    def _said(self, call: Call, found: Repository, said: Comments, render: Callable[[Repository, int], Any]) -> Answer:
        entries = comments_in_order(found, said, call)
        return numbered_page(entries, lambda ordinal: render(found, ordinal), _place(call, found))

    def _pull_reviews(self, call: Call, found: Repository) -> Answer:
        entries = found.reviews.of(self._pull_number(call, found))
        return numbered_page(entries, lambda ordinal: self._items.review(found, ordinal), _place(call, found))

    def _pull_commits(self, call: Call, found: Repository) -> Answer:
        number = self._pull_number(call, found)
        count = min(MOST_PULL_COMMITS, pull_commits(found, number))
        shas = [f"{draw(found.key, number, i, 71):040x}" for i in range(count)]
        return numbered_page(shas, lambda sha: {"sha": sha}, _place(call, found))

    def _pull_files(self, call: Call, found: Repository) -> Answer:
        count = min(MOST_PULL_FILES, pull_files(found, self._pull_number(call, found)))
        return numbered_page(range(count), lambda i: {"filename": f"src/part_{i}.py"}, _place(call, found))

    def _commits(self, call: Call, found: Repository) -> Answer:
        if not len(found.history):
            raise refuse(409, "Git Repository is empty.")
        entries = commits_in_order(found, call, self._items)
        return numbered_page(entries, lambda ref: self._items.commit(found, ref), _place(call, found))

    def _commit(self, call: Call, found: Repository) -> Answer:
        if not len(found.history):
            raise refuse(409, "Git Repository is empty.")
        ref = found.history.find(call.match.rest[1])
        if ref is None:
            raise refuse(422, f"No commit found for SHA: {call.match.rest[1]}")
        return ok(self._items.whole_commit(found, ref), last_modified=found.history.committed(ref))

    def _contributors(self, call: Call, found: Repository) -> Answer:
        if not len(found.history):
            return Answer(204, b"")
        return self._extra("contributors", call, found)

    def _extra(self, name: str, call: Call, found: Repository) -> Answer:
        if name == "issue_events" and not found.has_issues:
            raise refuse(410, "Issues are disabled for this repo")
        return numbered_page(self._extras.listed(found, name), lambda entry: entry, _place(call, found))

    def _workflow_runs(self, call: Call, found: Repository) -> Answer:
        shown = self._extras.listed(found, "workflow_runs")
        page = numbered_page(shown, lambda entry: entry, _place(call, found))
        head = f'{{"total_count":{len(shown)},"workflow_runs":'
        return Answer(200, head.encode() + page.body + b"}", page.headers)

    def _stargazers(self, call: Call, found: Repository) -> Answer:
        """For collaborators only; with the time where it is requested."""
        if call.caller.owner.number != found.owner.id:
            return self._restricted(call, found)
        page = self._extras.listed(found, "stargazers")
        has_times = "star+json" in call.headers.get("Accept", "")
        return numbered_page(page, lambda entry: entry if has_times else entry["user"], _place(call, found))

    def _code_frequency(self, _call: Call, found: Repository) -> Answer:
        """Computed after the first question, and again after every push."""
        if not len(found.history):
            return Answer(204, b"")
        key = (found.id, -1 - len(found.history))
        if key not in self._computed:
            self._computed.add(key)
            return Answer(202, b"{}")
        return ok([[found.start, len(found.history) * 10, -len(found.history)]])

    def _restricted(self, _call: Call, _found: Repository) -> Answer:
        raise refuse(403, "Must have push access to view this list.")

    def _statistics(self, _call: Call, found: Repository) -> Answer:
        """Computed after the first question, and again after every change."""
        if (found.id, found.version) in self._computed:
            return ok([{"author": profiles.simple_user(found.owner), "total": len(found.history), "weeks": []}])
        self._computed.add((found.id, found.version))
        return Answer(202, b"{}")


def threads_in_order(found: Repository, call: Call, *, pulls_only: bool) -> Ordered:
    """The issues list or the list of pull requests, as the query wants it. Only the former knows `since`."""
    state = _choice(call, "state", ("open", "closed", "all"))
    sorts = ("created", "updated", "popularity", "long-running") if pulls_only else ("created", "updated", "comments")
    sort = _choice(call, "sort", sorts)
    default = ("asc", "desc") if pulls_only and sort != "created" else ("desc", "asc")
    since = None if pulls_only else _moment(call, "since")
    threads = found.threads
    column = {"created": threads.created, "long-running": threads.created, "updated": threads.updated}.get(
        sort, threads.replies
    )

    def key(number: int) -> tuple[int, int]:
        return column[number], number

    def ascending() -> list[int]:
        numbers = threads.pulls() if pulls_only else threads.numbers()
        if state != "all":
            numbers = [n for n in numbers if bool(threads.closed[n]) == (state == "closed")]
        if since is not None:
            numbers = [n for n in numbers if threads.updated[n] >= since]
        return sorted(numbers, key=key)

    entries = found.view(("threads", pulls_only, state, sort, since), ascending)
    return Ordered(entries, key, _choice(call, "direction", default) == "desc")


def comments_in_order(found: Repository, said: Comments, call: Call) -> Sequence[int]:
    """By id, or as the query wants it."""
    since, sort = _moment(call, "since"), call.query.get("sort")
    descending = sort is not None and _choice(call, "direction", ("desc", "asc")) == "desc"

    def in_order() -> list[int]:
        ordinals = [o for o in said.ordinals() if since is None or said.updated[o] >= since]
        if sort == "updated":
            ordinals.sort(key=lambda o: (said.updated[o], o))
        return ordinals[::-1] if descending else ordinals

    return found.view(("said", said.key, since, sort, descending), in_order)


def commits_in_order(found: Repository, call: Call, items: Items) -> Sequence[Ref]:
    """From a tip to the root; `since` and `until` look at the committer date only."""
    history, tip = found.history, call.query.get("sha", "main")
    since, until, author = _moment(call, "since"), _moment(call, "until"), call.query.get("author")
    tip = history.head if tip == "main" else tip
    if tip is None or history.find(tip) is None:
        raise not_found()

    def by(ref: Ref) -> bool:
        rendered = items.commit(found, ref)
        return author in ((rendered["author"] or {}).get("login"), rendered["commit"]["author"]["email"])

    def walked() -> Sequence[Ref]:
        refs = history.walk(tip)
        if since is not None:
            refs = [ref for ref in refs if history.committed(ref) >= since]
        if until is not None:
            refs = [ref for ref in refs if history.committed(ref) <= until]
        return refs if author is None else [ref for ref in refs if by(ref)]

    return found.view(("commits", tip, since, until, author), walked)


def _place(call: Call, found: Repository) -> Place:
    """Links name a repository by its number."""
    return Place(f"{call.origin}/repositories/{found.id}/{'/'.join(call.match.rest)}", call.query)


def _number(call: Call) -> int:
    text = call.match.rest[1]
    if not text.isdigit():
        raise not_found()
    return int(text)


def _choice(call: Call, name: str, options: tuple[str, ...]) -> str:
    """One of the options; the first, if nothing is said."""
    chosen = call.query.get(name, options[0])
    if chosen not in options:
        raise _invalid(name)
    return chosen


def _moment(call: Call, name: str) -> int | None:
    text = call.query.get(name)
    if text is None:
        return None
    try:
        return from_iso(text)
    except ValueError:
        raise _invalid(name) from None


def _invalid(name: str) -> Refused:
    return refuse(422, "Validation Failed", errors=[{"resource": "List", "code": "invalid", "field": name}])


def _moved(call: Call, to: str, rest: tuple[str, ...]) -> Refused:
    """301, or 307 for what must not be asked again as a GET."""
    url = "/".join((f"{call.origin}{to}", *rest)) + (f"?{call.raw_query}" if call.raw_query else "")
    status, message = (301, "Moved Permanently") if call.method in ("GET", "HEAD") else (307, "Temporary Redirect")
    return Refused(error(status, message, url=url, headers={"location": url}))


def _blocked(found: Repository) -> Refused:
    status, reason = (451, "dmca") if found.standing is Standing.TAKEN_DOWN else (403, "tos")
    block = {"reason": reason, "created_at": "2026-01-01T00:00:00Z", "html_url": "https://github.com/tos"}
    return refuse(status, "Repository access blocked", block=block)
