"""The items of a repository as JSON: issues, pull requests, comments, reviews, commits.

The ids of one kind are unique; an issue and a pull request may well share one: each kind counts for itself.
"""

from tidegate_simulators.draws import draw, pick
from tidegate_simulators.github.comments import Comments
from tidegate_simulators.github.commits import Ref
from tidegate_simulators.github.draws import LABELS, iso, prose, title
from tidegate_simulators.github.generation import FIRST_REPOSITORY_ID
from tidegate_simulators.github.profiles import API, SITE, Json, node_id, simple_user
from tidegate_simulators.github.repository import Account, Repository
from tidegate_simulators.github.threads import Kind
from tidegate_simulators.github.world import World

REVIEW_STATES = ("APPROVED", "CHANGES_REQUESTED", "COMMENTED", "COMMENTED", "DISMISSED")
_ID_BITS = 24


def first_id(repository: Repository) -> int:
    """Where the ids of everything in a repository begin; all of them need more than 32 bits."""
    return (repository.id - FIRST_REPOSITORY_ID + 256) << _ID_BITS


def repository_of(item_id: int) -> int:
    """The id of the repository that an item with this id is in."""
    return (item_id >> _ID_BITS) - 256 + FIRST_REPOSITORY_ID


def number_of(pull: int) -> int:
    """The number of the pull request with this id."""
    return (pull & ((1 << _ID_BITS) - 1)) // 3


def issue_id(repository: Repository, number: int) -> int:
    """The id of an issue, and of a pull request where it appears among the issues."""
    return first_id(repository) + 2 * number


def pull_id(repository: Repository, number: int) -> int:
    """The id of a pull request as such."""
    return first_id(repository) + 3 * number


def comment_id(repository: Repository, ordinal: int) -> int:
    """The id of a comment, a review comment or a review."""
    return first_id(repository) + ordinal


class Items:
    """Renders the items of the repositories of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def author(self, repository: Repository, number: int) -> Account | None:
        """The author of an issue or a pull request."""
        known = repository.threads.authors.get(number)
        if known is not None:
            return self._world.account_by_id(known)
        return self._world.contributor(draw(repository.key, number, 51), repository.owner)

    def speaker(self, repository: Repository, said: Comments, ordinal: int) -> Account | None:
        """The author of a comment or a review."""
        known = said.authors.get(ordinal)
        if known is not None:
            return self._world.account_by_id(known)
        return self._world.contributor(draw(said.key, ordinal, 52), repository.owner)

    def _thread(self, repository: Repository, number: int) -> Json:
        """What an issue and a pull request have in common."""
        threads, bits = repository.threads, draw(repository.key, number, 53)
        closed, edits = threads.closed[number], threads.edits.get(number, 0)
        author = self.author(repository, number)
        return {
            "number": number,
            "state": "closed" if closed else "open",
            "locked": False,
            "title": title(bits + edits),
            "user": simple_user(author),
            "body": prose(bits),
            "labels": [self._label(repository, (bits >> 8 * i) % len(LABELS)) for i in range(bits % 3)],
            "assignee": None,
            "assignees": [],
            "milestone": None,
            "created_at": iso(threads.created[number]),
            "updated_at": iso(threads.updated[number]),
            "closed_at": iso(closed) if closed else None,
            "author_association": _association(author, repository),
            "active_lock_reason": None,
            "type": None,
        }

    def _label(self, repository: Repository, ordinal: int) -> Json:
        number = (repository.id << 8) + ordinal
        return {
            "id": number,
            "node_id": node_id("LA", number),
            "name": LABELS[ordinal],
            "color": "0e8a16",
            "default": True,
        }

    def issue(self, repository: Repository, number: int) -> Json:
        """An entry of the issues list; a pull request has the key `pull_request`."""
        threads, kind = repository.threads, repository.threads.kinds[number]
        place = "pull" if kind else "issues"
        number_id = issue_id(repository, number)
        rendered = {
            "id": number_id,
            "node_id": node_id("PR", pull_id(repository, number)) if kind else node_id("I", number_id),
            "url": f"{API}/repos/{repository.full_name}/issues/{number}",
            "repository_url": f"{API}/repos/{repository.full_name}",
            "html_url": f"{SITE}/{repository.full_name}/{place}/{number}",
            **self._thread(repository, number),
            "comments": threads.replies[number],
            "reactions": {"total_count": draw(repository.key, number, 54) % 5},
            "state_reason": "completed" if threads.closed[number] and not kind else None,
        }
        if kind:
            merged_at = threads.closed[number] if kind == Kind.MERGED_PULL else 0
            rendered["draft"] = False
            rendered["pull_request"] = {
                "url": f"{API}/repos/{repository.full_name}/pulls/{number}",
                "html_url": rendered["html_url"],
                "merged_at": iso(merged_at) if merged_at else None,
            }
        return rendered

    def pull(self, repository: Repository, number: int) -> Json:
        """An entry of the list of pull requests."""
        threads, number_id = repository.threads, pull_id(repository, number)
        merged_at = threads.closed[number] if threads.kinds[number] == Kind.MERGED_PULL else 0
        sha = f"{draw(repository.key, number, 55):040x}"
        base = {"id": repository.id, "name": repository.name, "full_name": repository.full_name}
        return {
            "id": number_id,
            "node_id": node_id("PR", number_id),
            "url": f"{API}/repos/{repository.full_name}/pulls/{number}",
            "html_url": f"{SITE}/{repository.full_name}/pull/{number}",
            **self._thread(repository, number),
            "merged_at": iso(merged_at) if merged_at else None,
            "merge_commit_sha": sha if merged_at else None,
            "requested_reviewers": [],
            "draft": False,
            "head": {"ref": f"topic-{number}", "sha": sha, "repo": None},
            "base": {"ref": "main", "sha": sha[::-1], "repo": base},
            "auto_merge": None,
        }

    def whole_pull(self, repository: Repository, number: int) -> Json:
        """A pull request alone: with the counts that lists do not have."""
        bits, is_merged = draw(repository.key, number, 56), repository.threads.kinds[number] == Kind.MERGED_PULL
        return self.pull(repository, number) | {
            "merged": is_merged,
            "merged_by": simple_user(repository.owner) if is_merged else None,
            "comments": repository.threads.replies[number],
            "review_comments": len(repository.review_comments.of(number)),
            "commits": pull_commits(repository, number),
            "additions": bits % 900,
            "deletions": (bits >> 12) % 400,
            "changed_files": pull_files(repository, number),
        }

    def _said(self, repository: Repository, said: Comments, ordinal: int) -> Json:
        """What every comment has."""
        author = self.speaker(repository, said, ordinal)
        return {
            "id": comment_id(repository, ordinal),
            "user": simple_user(author),
            "body": prose(draw(said.key, ordinal, said.updated[ordinal])),
            "created_at": iso(said.created[ordinal]),
            "updated_at": iso(said.updated[ordinal]),
            "author_association": _association(author, repository),
            "reactions": {"total_count": draw(said.key, ordinal) % 3},
        }

    def comment(self, repository: Repository, ordinal: int) -> Json:
        """A comment on an issue or a pull request."""
        said = repository.comments
        url = f"{API}/repos/{repository.full_name}/issues"
        return self._said(repository, said, ordinal) | {
            "node_id": node_id("IC", comment_id(repository, ordinal)),
            "url": f"{url}/comments/{comment_id(repository, ordinal)}",
            "issue_url": f"{url}/{said.parents[ordinal]}",
        }

    def review_comment(self, repository: Repository, ordinal: int) -> Json:
        """A comment on a line of a pull request."""
        said, bits = repository.review_comments, draw(repository.key, ordinal, 57)
        url = f"{API}/repos/{repository.full_name}/pulls"
        return self._said(repository, said, ordinal) | {
            "node_id": node_id("PRRC", comment_id(repository, ordinal)),
            "url": f"{url}/comments/{comment_id(repository, ordinal)}",
            "pull_request_url": f"{url}/{said.parents[ordinal]}",
            "path": f"src/part_{bits % 40}.py",
            "line": 1 + bits % 300,
            "side": "RIGHT",
            "commit_id": f"{bits:040x}",
            "diff_hunk": "@@ -1,2 +1,3 @@",
            "in_reply_to_id": None,
        }

    def review_thread(self, repository: Repository, ordinal: int) -> Json:
        """The thread that a review comment begins, with names like those of the REST API."""
        comment, bits = self.review_comment(repository, ordinal), draw(repository.key, ordinal, 60)
        is_resolved = ordinal in repository.review_comments.resolved
        return {
            "id": node_id("PRRT", comment_id(repository, ordinal)),
            "is_resolved": is_resolved,
            "is_outdated": bits % 5 == 0,
            "is_collapsed": is_resolved,
            "path": comment["path"],
            "line": None if bits % 5 == 0 else comment["line"],
            "start_line": None,
            "original_line": comment["line"],
            "diff_side": comment["side"],
            "subject_type": "LINE",
            "resolved_by": {"login": repository.owner.login, "id": repository.owner.id} if is_resolved else None,
        }

    def review(self, repository: Repository, ordinal: int) -> Json:
        """A review of a pull request."""
        said = repository.reviews
        author = self.speaker(repository, said, ordinal)
        number = said.parents[ordinal]
        return {
            "id": comment_id(repository, ordinal),
            "node_id": node_id("PRR", comment_id(repository, ordinal)),
            "user": simple_user(author),
            "body": prose(draw(said.key, ordinal)),
            "state": pick(REVIEW_STATES, draw(said.key, ordinal, 58)),
            "html_url": f"{SITE}/{repository.full_name}/pull/{number}",
            "pull_request_url": f"{API}/repos/{repository.full_name}/pulls/{number}",
            "submitted_at": iso(said.created[ordinal]),
            "updated_at": iso(said.created[ordinal]),
            "commit_id": f"{draw(said.key, ordinal, 59):040x}",
            "author_association": _association(author, repository),
        }

    def commit(self, repository: Repository, ref: Ref) -> Json:
        """A commit; `author` is null where the address belongs to no account."""
        history = repository.history
        sha = history.sha(ref)
        author = self._committer(repository, ref)
        login = author.login if author else "unknown"
        who = {"name": login, "email": f"{login}@example.org"}
        return {
            "sha": sha,
            "node_id": f"C_{sha}",
            "commit": {
                "author": {**who, "date": iso(history.authored(ref))},
                "committer": {**who, "date": iso(history.committed(ref))},
                "message": title(int(sha[:16], 16)),
                "tree": {"sha": sha[::-1], "url": f"{API}/repos/{repository.full_name}/git/trees/{sha[::-1]}"},
                "comment_count": 0,
                "verification": {"verified": False, "reason": "unsigned", "signature": None, "payload": None},
            },
            "url": f"{API}/repos/{repository.full_name}/commits/{sha}",
            "html_url": f"{SITE}/{repository.full_name}/commit/{sha}",
            "author": simple_user(author) if author else None,
            "committer": simple_user(author) if author else None,
            "parents": [
                {"sha": p, "url": f"{API}/repos/{repository.full_name}/commits/{p}"} for p in history.parents(ref)
            ],
        }

    def pushed_commit(self, repository: Repository, ref: Ref) -> Json:
        """A commit as the payload of a push has it."""
        whole = self.commit(repository, ref)
        people = {
            role: {
                "name": whole["commit"][role]["name"],
                "email": whole["commit"][role]["email"],
                **({} if whole[role] is None else {"username": whole[role]["login"]}),
            }
            for role in ("author", "committer")
        }
        return {
            "id": whole["sha"],
            "tree_id": whole["commit"]["tree"]["sha"],
            "distinct": True,
            "message": whole["commit"]["message"],
            "timestamp": whole["commit"]["committer"]["date"],
            "url": whole["html_url"],
            **people,
            "added": [],
            "removed": [],
            "modified": ["README.md"],
        }

    def whole_commit(self, repository: Repository, ref: Ref) -> Json:
        """A commit alone: with its files and how many lines it changes. A merge may change none."""
        bits = draw(repository.key, int(repository.history.sha(ref)[:12], 16), 63)
        files: list[Json] = [
            {
                "sha": f"{draw(bits, n):040x}" if n else None,
                "filename": f"src/part_{(bits + n) % 40}.py",
                "status": pick(("modified", "added", "removed", "renamed"), draw(bits, n, 1)),
                "additions": draw(bits, n, 2) % 50,
                "deletions": draw(bits, n, 3) % 30,
                "changes": draw(bits, n, 2) % 50 + draw(bits, n, 3) % 30,
            }
            for n in range(bits % 4)
        ]
        added, deleted = (sum(file[name] for file in files) for name in ("additions", "deletions"))
        stats = {"total": added + deleted, "additions": added, "deletions": deleted}
        return self.commit(repository, ref) | {"stats": stats, "files": files}

    def timeline(self, repository: Repository, number: int) -> list[Json]:
        """What happened to an issue or pull request, the oldest first. The actor of some was deleted.

        Entries have different shapes: a comment has a `user`, a commit has neither a number nor an actor.
        """
        threads, author = repository.threads, simple_user(self.author(repository, number))
        entries: list[Json] = [
            {
                "id": (issue_id(repository, number) << 8) + 1,
                "event": "labeled",
                "actor": None if number % 9 == 0 else author,
                "label": {"name": LABELS[number % len(LABELS)]},
                "commit_id": None,
                "created_at": iso(threads.created[number]),
            }
        ]
        for ordinal in repository.comments.of(number):
            said = self.comment(repository, ordinal)
            entries.append({**said, "event": "commented", "actor": said["user"]})
        if threads.kinds[number]:
            entries.append({"sha": f"{draw(repository.key, number, 64):040x}", "event": "committed", "message": "Work"})
        if threads.closed[number]:
            entries.append(
                {
                    "id": (issue_id(repository, number) << 8) + 2,
                    "event": "closed",
                    "actor": author,
                    "commit_id": None,
                    "created_at": iso(threads.closed[number]),
                }
            )
        return entries

    def _committer(self, repository: Repository, ref: Ref) -> Account | None:
        if isinstance(ref, str):
            author_id = repository.history.pushed[ref].author_id
            return repository.owner if author_id is None else self._world.account_by_id(author_id)
        return self._world.contributor(draw(repository.key, ref, 60), repository.owner)


def _association(author: Account | None, repository: Repository) -> str:
    return "NONE" if author is None else "OWNER" if author is repository.owner else "CONTRIBUTOR"


def pull_commits(repository: Repository, number: int) -> int:
    """How many commits a pull request has; a few have more than can be listed."""
    bits = draw(repository.key, number, 61)
    return 251 + bits % 300 if bits >> 32 & 63 == 0 else 1 + bits % 20


def pull_files(repository: Repository, number: int) -> int:
    """How many files a pull request changes; a few change more than can be listed."""
    bits = draw(repository.key, number, 62)
    return 3_001 + bits % 2_000 if bits >> 32 & 63 == 0 else 1 + bits % 60
