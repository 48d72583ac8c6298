"""What a collector has stored: one line of JSON per item, `{"kind": "issue", "id": "7"}`."""

import json
import sys
from pathlib import Path


class Job:
    """The arguments of a runner: address of the API, token, folder of the collector, login, names of repositories."""

    def __init__(self) -> None:
        self.url, self.token, folder, self.login, *self.repositories = sys.argv[1:]
        self.folder = Path(folder)
        self._records = (self.folder / "records.jsonl").open("a")

    def store(self, kind, identity) -> None:
        """Store an item. The line is written at once, so that a kill loses nothing that was stored."""
        self._records.write(json.dumps({"kind": kind, "id": str(identity)}) + "\n")
        self._records.flush()

    def state(self, default=None):
        """What the last run left."""
        path = self.folder / "state.json"
        return json.loads(path.read_text()) if path.exists() else default

    def keep_state(self, state) -> None:
        """What the next run is given."""
        path = self.folder / "state.json.new"
        path.write_text(json.dumps(state))
        path.replace(self.folder / "state.json")
