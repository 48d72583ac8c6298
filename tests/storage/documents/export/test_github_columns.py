"""The columns of GitHub's kinds, on documents as GitHub writes them."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.storage.documents.export.reading import read_rows, verify
from tests.storage.documents.harness import StoreHarness
from tidegate.storage.documents import Document
from tidegate.storage.documents.export.exporter import ExportRequest, export
from tidegate.storage.documents.export.formats import Format
from tidegate.systems.github import kinds
from tidegate.systems.github.kinds import COLUMNS
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, Sizes, WorldShape, profiles
from tidegate_simulators.github.extras import DISCUSSIONS, NAMES
from tidegate_simulators.github.items import Items

SMALL = Sizes(issues=12, pulls=8, commits=9, issue_comments=11, review_comments=4, reviews=6)
SELDOM = {
    "user": {"email", "hireable", "twitter_username"},
    "repository": {"license", "is_template"},
    "issue": {"active_lock_reason", "milestone"},
    "pull_request": {"active_lock_reason", "milestone", "head_repo"},
    "event": {"org_login", "ref", "ref_type", "push_id", "head", "before", "action"},
    "issue_comment": {"html_url"},
    "review_comment": {"html_url", "in_reply_to_id", "pull_request_review_id"},
    "review": {"pull_request_number"},
    "organization": {"description", "company", "location", "blog", "email", "twitter_username"},
    "release": {"assets"},
    "label": {"description"},
    "milestone": {"description", "due_on", "html_url"},
    "fork": {column.name for column in COLUMNS["fork"]} - {"github_id", "name", "full_name", "owner_login", "fork"},
    "workflow_run": {"html_url"},
    "issue_event": {"label", "commit_id"},
    "team": {"description"},
    "workflow_job": {"runner_name", "html_url"},
    "branch_commit": {
        *("author_login", "author_id", "committer_login", "committer_id", "verified"),
        *("comment_count", "parents", "tree_sha", "html_url"),
    },
    "timeline_event": {"state", "commit_id", "submitted_at"},
    "review_thread": {"start_line", "resolved_by_login", "resolved_by_id", "comments"},
}
"""Columns that may be empty in all documents of the small world."""


def found_in(sim: GithubSimulator) -> dict[str, list[dict[str, Any]]]:
    """Every item of the world, by the kind of document it becomes."""
    truths = [sim.truth(login) for login in sim.world.logins()]
    repositories = [each for truth in truths for each in truth.repositories]
    return {
        "user": [dict(truth.profile) for truth in truths],
        "repository": [dict(each.repository) for each in repositories],
        "issue": [dict(item) for each in repositories for item in each.issues],
        "pull_request": [dict(item) for each in repositories for item in each.pulls],
        "commit": [dict(item) for each in repositories for item in each.commits],
        "event": [dict(item) for truth in truths for item in truth.events],
        "issue_comment": [dict(item) for each in repositories for item in each.issue_comments],
        "review_comment": [dict(item) for each in repositories for item in each.review_comments],
        "review": [dict(item) for each in repositories for item in each.reviews],
        **further_lists(sim),
    }


def further_lists(sim: GithubSimulator) -> dict[str, list[dict[str, Any]]]:
    """Items of the lists that the registry declares beside these."""
    organization, *people = sim.world.accounts
    found = {
        declared.document or "": [
            item for each in sim.world.all_repositories() for item in sim.extras.listed(each, name)
        ]
        for name in NAMES
        for declared in kinds.REGISTRY.values()
        if declared.name == name.replace("_", "-")
    }
    items, [repository, *_] = (
        Items(sim.world),
        [each for each in sim.world.all_repositories() if each.threads.numbers()],
    )
    runs, heads = (sim.extras.listed(repository, name) for name in ("workflow_runs", "branches"))
    return found | {
        "workflow_job": [job for run in runs for job in sim.extras.jobs_of(repository, str(run["id"])) or ()],
        "commit_detail": [items.whole_commit(repository, ref) for ref in range(len(repository.history))],
        "branch_commit": [
            {**commit, "branch": head["name"]}
            for head in heads
            for commit in sim.extras.commits_of(repository, head["commit"]["sha"]) or ()
        ],
        "timeline_event": [
            {**entry, "issue_number": number}
            for number in repository.threads.numbers()
            for entry in items.timeline(repository, number)
        ],
        "discussion": [
            sim.extras.discussion(each, entry.number)
            for each in sim.world.all_repositories()
            for entry in sim.extras.of(each, DISCUSSIONS)
        ],
        "discussion_comment": [
            sim.extras.discussion_comment(each, entry.number, comment, reply)
            for each in sim.world.all_repositories()
            for entry in sim.extras.of(each, DISCUSSIONS)
            for comment, replies in enumerate(sim.extras.talk_of(each, entry.number), start=1)
            for reply in replies
        ],
        "review_thread": [
            items.review_thread(each, ordinal)
            | {
                "pull_request_number": each.review_comments.parents[ordinal],
                "review_comment_id": items.review_comment(each, ordinal)["id"],
            }
            for each in sim.world.all_repositories()
            for ordinal in each.review_comments.ordinals()
        ],
        "organization": [profiles.organization(sim.world, organization)],
        "member": [profiles.simple_user(each) for each in people],
        "team": [profiles.team(organization, "Harbour", 0)],
        "code_frequency": [{"id": 1, "weeks": [[0, 1, -1]]}],
    }


@pytest.fixture
async def world(local: StoreHarness) -> dict[str, list[dict[str, Any]]]:
    """A small GitHub in the store."""
    shape = WorldShape(users=8, repositories=1, sizes=SMALL, events=20, discussions=7, quirks=False)
    async with GithubSimulator(SimulatorConfig(world=shape)) as sim:
        found = found_in(sim)
    for kind, items in found.items():
        shared = kind == "contributor"  # the same accounts in several repositories
        ids = [str((not shared and item.get("id")) or item.get("sha") or n) for n, item in enumerate(items)]
        await local.write(
            *(Document.of(kind, id_, owner="o", resource="r", body=item) for id_, item in zip(ids, items, strict=True))
        )
    return found


def test_every_kind_of_document_has_columns():
    assert COLUMNS.keys() == {kinds.USER, kinds.ORGANIZATION, kinds.REPOSITORY, *kinds.DOCUMENTS.values()}


@pytest.mark.parametrize("form", [Format.PARQUET, Format.CSV])
async def test_the_columns_find_the_fields_of_github(
    local: StoreHarness, world: dict[str, list[dict[str, Any]]], tmp_path: Path, form: Format
):
    await export(local.store, tmp_path / "out", ExportRequest(format=form, kinds=COLUMNS))

    manifest = verify(tmp_path / "out")
    assert {each["kind"]: each["documents"] for each in manifest["files"]} == {k: len(v) for k, v in world.items()}
    assert {each["kind"]: each["misfits"] for each in manifest["files"] if each["misfits"]} == {}
    for kind, columns in COLUMNS.items():
        rows = read_rows(tmp_path / "out", kind)
        empty = {column.name for column in columns if all(row[column.name] is None for row in rows)}
        assert empty - SELDOM.get(kind, set()) == set(), kind


async def test_selected_values_are_correct(local: StoreHarness, world: dict[str, list[dict[str, Any]]], tmp_path: Path):
    await export(local.store, tmp_path / "out", ExportRequest(format=Format.PARQUET, kinds=COLUMNS))

    def by_id(kind: str) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in read_rows(tmp_path / "out", kind)}

    pulls, commits, comments = by_id("pull_request"), by_id("commit"), by_id("issue_comment")
    for pull in world["pull_request"]:
        row = pulls[str(pull["id"])]
        assert row["user_login"] == pull["user"]["login"]
        assert row["labels"] == [label["name"] for label in pull["labels"]]
        assert row["github_created_at"] == datetime.fromisoformat(pull["created_at"])
        assert (row["merged_at"] is None) == (pull["merged_at"] is None)
        assert row["base_repo"] == pull["base"]["repo"]["full_name"]
    for commit in world["commit"]:
        row = commits[commit["sha"]]
        assert row["message"] == commit["commit"]["message"]
        assert row["parents"] == [parent["sha"] for parent in commit["parents"]]
        assert row["committed_at"] == datetime.fromisoformat(commit["commit"]["committer"]["date"])
    for comment in world["issue_comment"]:
        row = comments[str(comment["id"])]
        assert (row["text"], row["issue_number"]) == (comment["body"], int(comment["issue_url"].rpartition("/")[2]))
    assert {row["is_pull_request"] for row in by_id("issue").values()} <= {True, False}
