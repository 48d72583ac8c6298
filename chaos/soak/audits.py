"""Compares the stored data with the upstreams and with the answers to users."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select

from chaos import crawl_audit
from chaos.comparison import compare, disagreements
from chaos.crawl import truth_of
from chaos.soak.deployment import CHARACTERS_PER_S, Deployment, Member, Upstreams
from chaos.soak.load import CAPACITY, ROOM, STOCK, Load
from tidegate.engine.source_cell import SourceCell
from tidegate.storage.sql import Transaction
from tidegate.systems.campaigns.campaign_store import campaign_entries
from tidegate.systems.github.kinds import DOCUMENTS, REPOSITORY, USER
from tidegate.systems.github.settings import GithubSettings
from tidegate.systems.waiting_room import AdmissionState
from tidegate.systems.waiting_room.room_store import room_tokens

MOST_LINES_PER_S = 1.0
MOST_GROWTH = 0.10
"""Of the resident memory, between the second and the last third of the soak."""
_USED = (AdmissionState.ACTIVE, AdmissionState.EXPIRED, AdmissionState.LEFT)


async def audit_collection(collection: SourceCell, deployment: Deployment, load: Load) -> list[str]:
    """Documents equal the simulator's, counters equal a recount, every run ended once, no limit was exceeded."""
    simulator, database = deployment.upstreams.github, collection.parts.database
    logins = list(simulator.world.logins())
    kinds = {USER, REPOSITORY} | {
        DOCUMENTS[kind] for kind in collection.parts.settings.section(GithubSettings).kinds if kind in DOCUMENTS
    }
    compared = await compare(simulator, collection.documents.of("github"), logins, kinds=kinds)
    found = [*compared.differences, *await database.read(disagreements, load.run_ids)]
    report = simulator.report()
    return found + [f"GitHub limit {rule} exceeded {times} times" for rule, times in report.violations.items()]


def uncertain_windows(upstreams: Upstreams) -> list[str]:
    """Windows that the simulators could not judge, because their event loop stalled: neither a breach nor a proof."""
    game = upstreams.game.report()
    found = [
        ("GitHub", upstreams.github.report().uncertain_samples),
        ("marketplace", upstreams.market.report().uncertain_samples),
        ("game API", [window for key in game.keys for window in key.uncertain_windows]),
    ]
    return [
        f"uncertain: {name}, {window.rule} of {window.caller}: {window.read:g} read, {window.certain:g} certain, "
        f"limit {window.limit:g}, stall {window.stall_ms:.0f} ms"
        for name, windows in found
        for window in windows
    ]


async def audit_crawl(collection: SourceCell, deployment: Deployment) -> list[str]:
    """Products equal the marketplace's, and no host was called too soon."""
    market = deployment.upstreams.market
    truth = truth_of(market)

    def products(tx: Transaction) -> list[str]:
        return list(crawl_audit.of_products(tx, truth))

    return [*await collection.parts.database.read(products), *crawl_audit.of_politeness(market.report())]


def audit_snapshots(deployment: Deployment, load: Load) -> list[str]:
    """No version went back, no body belongs to another subject, no limit was exceeded."""
    report = deployment.upstreams.game.report()
    found = list(load.breaches)
    if report.broken or report.most_in_a_second > CHARACTERS_PER_S:
        most = report.most_in_a_second
        found.append(f"game API: {report.broken} requests over a limit, {most} in one second of {CHARACTERS_PER_S}")
    return found


async def audit_campaigns(collection: SourceCell, load: Load, flushes: Sequence[datetime]) -> list[str]:
    """As many coupons as there are, to the first in order, one for each user; every accepted entry was decided.

    An entry may only be lost by a flush that came after it was sent.
    """
    rows = await collection.parts.database.read(_entries)
    return [
        problem
        for name in load.campaigns
        for problem in _campaign(name, rows.get(name, []), load.accepted[name], _flushed(load, name, flushes))
    ]


def _flushed(load: Load, name: str, flushes: Sequence[datetime]) -> set[str]:
    """Users whose entry was lost after a flush."""
    sent_at = load.accepted[name]
    return {user for user in load.lost[name] if any(sent_at[user] <= flush for flush in flushes)}


def _campaign(
    name: str, rows: Sequence[tuple[str, int, str]], accepted: Mapping[str, datetime], flushed: set[str]
) -> Iterator[str]:
    issued = [row for row in rows if row[2] == "issued"]
    if len(issued) != min(STOCK, len(accepted)):
        yield f"{name}: {len(issued)} coupons issued, of {STOCK} for {len(accepted)} accepted users"
    if twice := [user for user, times in Counter(row[0] for row in issued).items() if times > 1]:
        yield f"{name}: {len(twice)} users have two coupons, e.g. {twice[0]}"
    if missing := set(accepted) - {row[0] for row in rows} - flushed:
        yield f"{name}: {len(missing)} accepted entries were never decided, e.g. {min(missing)}"


async def audit_room(collection: SourceCell, load: Load, flushes: Sequence[datetime]) -> list[str]:
    """Admissions in order of arrival, each place used once, never more sessions at once than the capacity."""
    tokens = await collection.parts.database.read(_tokens)
    return [*_places(tokens), *_overtaken(tokens, load.joined_at, flushes), *_overlap(tokens)]


def _places(tokens: Sequence[Any]) -> Iterator[str]:
    if twice := [place for place, times in Counter(token.place for token in tokens).items() if times > 1]:
        yield f"{len(twice)} places of the room were used twice, e.g. {twice[0]}"


def _overtaken(tokens: Sequence[Any], joined_at: Mapping[str, datetime], flushes: Sequence[datetime]) -> Iterator[str]:
    """Whether a visitor with a later place was admitted before one that waited all the time.

    After a flush, the line consists of the visitors that have presented their passes again: a visitor that waited
    through a flush is not counted as overtaken.
    """
    first_later: list[int] = []
    worst, count = 0, 0
    for token in sorted(tokens, key=lambda each: (each.admitted_at, each.place)):
        since = joined_at.get(token.user_id)
        passed_by = sum(1 for place in first_later if place > token.place)
        if passed_by and since is not None and not any(since < flush < token.admitted_at for flush in flushes):
            count, worst = count + 1, max(worst, passed_by)
        first_later.append(token.place)
    if count:
        yield f"{count} visitors were overtaken, one by {worst} others"


def _overlap(tokens: Sequence[Any]) -> Iterator[str]:
    ends: list[datetime] = []
    most = 0
    for token in sorted(tokens, key=lambda each: each.admitted_at):
        while ends and ends[0] <= token.admitted_at:
            heapq.heappop(ends)
        heapq.heappush(ends, token.ended_at or token.expires_at)
        most = max(most, len(ends))
    if most > CAPACITY:
        yield f"{most} sessions at once in a room for {CAPACITY}"


def audit_processes(members: Sequence[Member]) -> list[str]:
    """Log volume and memory of the processes."""
    found = list[str]()
    for member in members:
        if (rate := member.logged_lines / max(member.lifetime_s, 1)) > MOST_LINES_PER_S:
            found.append(f"member {member.number} logged {rate:.2f} lines/s")
    if (growth := memory_growth(members[0])) is not None and growth > MOST_GROWTH:
        found.append(f"the memory of member 0 grew by {growth:.0%} after warm-up")
    return found


def memory_growth(member: Member) -> float | None:
    """Growth of the mean resident memory from the second to the last third of the samples; None if there are few."""
    sizes = [size for _, size in member.memory_kb]
    if len(sizes) < 30:
        return None
    third = len(sizes) // 3
    second, last = sizes[third : 2 * third], sizes[2 * third :]
    return (sum(last) / len(last)) / (sum(second) / len(second)) - 1


def _tokens(tx: Transaction) -> list[Any]:
    return list(tx.execute(select(room_tokens).where(room_tokens.c.room == ROOM, room_tokens.c.state.in_(_USED))))


def _entries(tx: Transaction) -> dict[str, list[tuple[str, int, str]]]:
    at = campaign_entries.c
    found: dict[str, list[tuple[str, int, str]]] = {}
    for campaign, user, number, outcome in tx.execute(select(at.campaign, at.user_id, at.number, at.outcome)):
        found.setdefault(campaign, []).append((user, number, outcome))
    return found
