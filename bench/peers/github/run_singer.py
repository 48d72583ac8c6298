"""tap-github of the Singer project, with a target that stores records and the last state."""

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
                "access_token": job.token,
                "repository": " ".join(job.repositories),
                "start_date": "2000-01-01T00:00:00Z",
            }
        )
    )
    command = (job.url, "tap_github:main", "--config", str(config))
    if not catalog.exists():
        discovered = json.loads(run(*command, "--discover", collect=True))
        for stream in discovered["streams"]:
            for entry in stream["metadata"]:
                if not entry["breadcrumb"]:
                    entry["metadata"]["selected"] = stream["tap_stream_id"] in STREAMS
        catalog.write_text(json.dumps(discovered))

    def read(message) -> None:
        if message["type"] == "RECORD" and message["stream"] in STREAMS:
            kind, record = STREAMS[message["stream"]], message["record"]
            if not (kind == "issue" and record.get("pull_request")):
                job.store(kind, record.get("sha") or record["id"])
        elif message["type"] == "STATE":
            job.keep_state(message["value"])

    state = ["--state", str(job.folder / "state.json")] if job.state() else []
    return run(*command, "--properties", str(catalog), *state, read=read)


raise SystemExit(main())
