"""Airbyte's source-github, with a destination that stores records and the last state of each stream."""

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
                "credentials": {"option_title": "PAT Credentials", "personal_access_token": job.token},
                "repositories": job.repositories,
                "start_date": "2000-01-01T00:00:00Z",
            }
        )
    )
    command = (job.url, "source_github.run:run")
    if not catalog.exists():
        streams = []
        lines = run(*command, "discover", "--config", str(config), collect=True).splitlines()
        for message in (json.loads(line) for line in lines if line.startswith("{")):
            streams += message.get("catalog", {}).get("streams", []) if message["type"] == "CATALOG" else []
        selected = [
            {"stream": stream, "sync_mode": "incremental", "destination_sync_mode": "append"}
            for stream in streams
            if stream["name"] in STREAMS
        ]
        catalog.write_text(json.dumps({"streams": selected}))
    states = {json.dumps(each["stream"]["stream_descriptor"]): each for each in job.state([])}

    def read(message) -> None:
        if message["type"] == "RECORD" and message["record"]["stream"] in STREAMS:
            kind, record = STREAMS[message["record"]["stream"]], message["record"]["data"]
            if not (kind == "issue" and record.get("pull_request")):
                job.store(kind, record.get("sha") or record["id"])
        elif message["type"] == "STATE":
            state = message["state"]
            states[json.dumps(state["stream"]["stream_descriptor"])] = state
            job.keep_state(list(states.values()))

    state = ["--state", str(job.folder / "state.json")] if states else []
    return run(*command, "read", "--config", str(config), "--catalog", str(catalog), *state, read=read)


raise SystemExit(main())
