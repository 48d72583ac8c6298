"""Meltano's tap-github (meltanolabs-tap-github), with a target that stores records and the last state."""

import json

from records import Job

from messages import run

STREAMS = {"issues": "issue", "pull_requests": "pull_request", "commits": "commit"}


def main() -> int:
    job = Job()
    config, catalog = job.folder / "config.json", job.folder / "catalog.json"
    config.write_text(
        json.dumps(
            {
                "auth_token": job.token,
                "repositories": job.repositories,
                "start_date": "2000-01-01T00:00:00Z",
                "rate_limit_buffer": 5,  # 1,000 by default: more than a small quota has
            }
        )
    )
    command = (job.url, "tap_github.tap:cli", "--config", str(config))
    if not catalog.exists():
        discovered = json.loads(run(*command, "--discover", collect=True))
        for stream in discovered["streams"]:
            is_wanted = stream["tap_stream_id"] in STREAMS
            stream["selected"] = is_wanted
            for entry in stream["metadata"]:
                entry["metadata"]["selected"] = is_wanted
        catalog.write_text(json.dumps(discovered))

    def read(message) -> None:
        if message["type"] == "RECORD" and message["stream"] in STREAMS:
            kind, record = STREAMS[message["stream"]], message["record"]
            if not (kind == "issue" and record.get("type") == "pull_request"):
                job.store(kind, record.get("sha") or record["id"])
        elif message["type"] == "STATE":
            job.keep_state(message["value"])

    state = ["--state", str(job.folder / "state.json")] if job.state() else []
    return run(*command, "--catalog", str(catalog), *state, read=read)


raise SystemExit(main())
