"""`make bench [ONLY='gate idle']`: measure, print, and keep the whole."""

import sys

import uvloop

from bench import (
    calls,
    campaign_clients,
    campaign_requests,
    campaigns,
    cli_start,
    cold_reads,
    collect_time,
    collecting,
    crawl,
    dashboard,
    engine,
    fairness,
    gate,
    github_peers,
    http,
    idle,
    interference,
    limiter,
    memory,
    outbox,
    prefetch,
    prefetch_queries,
    quota,
    ranking,
    resume,
    room_requests,
    room_watchers,
    scaling,
    service_level,
    sizes,
    sizing,
    snapshot_reads,
    snapshot_waiters,
    stream,
    takeover,
    timers,
    waiting_room,
    warehouse,
    watchers,
)
from bench.figures import Section, keep, machine, write
from tidegate.core.telemetry.logs import configure_logs

KEPT = {"scaling", "interference"}
"""Parts whose section is replaced in the results also when they are measured alone."""
PARTS = {
    "stream": stream.measure,
    "gate": gate.measure,
    "limiter": limiter.measure,
    "timers": timers.measure,
    "outbox": outbox.measure,
    "engine": engine.measure,
    "calls": calls.measure,
    "collect": collecting.measure,
    "collect-time": collect_time.measure,
    "github_peers": github_peers.measure,
    "quota": quota.measure,
    "fairness": fairness.measure,
    "resume": resume.measure,
    "memory": memory.measure,
    "sizes": sizes.measure,
    "http": http.measure,
    "prefetch": prefetch.measure,
    "prefetch-queries": prefetch_queries.measure,
    "snapshot-reads": snapshot_reads.measure,
    "snapshot-waiters": snapshot_waiters.measure,
    "cold-reads": cold_reads.measure,
    "service-level": service_level.measure,
    "service-level-kafka": service_level.measure_with_kafka,
    "ranking": ranking.measure,
    "waiting-room": waiting_room.measure,
    "room-requests": room_requests.measure,
    "room-watchers": room_watchers.measure,
    "campaigns": campaigns.measure,
    "campaign-requests": campaign_requests.measure,
    "campaign-clients": campaign_clients.measure,
    "crawl": crawl.measure,
    "dashboard": dashboard.measure,
    "watchers": watchers.measure,
    "takeover": takeover.measure,
    "sync": warehouse.measure,
    "scaling": scaling.measure,
    "interference": interference.measure,
    "idle": idle.measure,
    "cli-start": cli_start.measure,
}


async def main(wanted: list[str]) -> None:
    sections: list[Section] = []
    for name in wanted:
        section = await PARTS[name]()
        print(section.text(), flush=True)
        sections.append(section)
        if name in KEPT:
            keep(section)
    if wanted == list(PARTS):
        write(sections)
    if wanted == list(PARTS) or "scaling" in wanted:
        sizing.write()


if __name__ == "__main__":
    configure_logs(level="warning")
    print(machine() + "\n")
    uvloop.run(main(sys.argv[1:] or list(PARTS)))
