"""Perceval: issues and pull requests. It takes commits from a clone and not from the API, so they are left out.

The script keeps the newest time of each list, which the next run is given as `from_date`.
"""

from address import redirect_to
from grimoirelab_toolkit.datetime import str_to_datetime
from perceval.backends.core.github import GitHub
from records import Job

job = Job()
redirect_to(job.url)
state = job.state({})
for name in job.repositories:
    owner, _, repository = name.partition("/")
    for category in ("issue", "pull_request"):
        key = f"{name} {category}"
        backend = GitHub(owner, repository, [job.token], sleep_for_rate=True, min_rate_to_sleep=5)
        since = {"from_date": str_to_datetime(state[key])} if key in state else {}
        newest = state.get(key, "")
        for item in backend.fetch(category=category, **since):
            data = item["data"]
            newest = max(newest, data["updated_at"])
            if category == "pull_request" or not data.get("pull_request"):
                job.store(category, data["id"])
        if newest:
            job.keep_state(state := {**state, key: newest})
