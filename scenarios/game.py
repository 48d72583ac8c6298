"""The game in a separate process, queried over its admin API."""

from typing import Any

import msgspec

from scenarios.client import Client
from scenarios.processes import Process
from tidegate_simulators.game import Report

_report = msgspec.json.Decoder(Report)


class _Truth(msgspec.Struct):
    kept: dict[str, Any]


class _Calls(msgspec.Struct):
    calls: int


class Game:
    """What the upstream knows: calls per key, broken limits, and the true characters."""

    def __init__(self, process: Process, client: Client, api_key: str) -> None:
        self.process, self.api_key, self._client = process, api_key, client
        self.url = process.url

    async def report(self) -> Report:
        """The whole account."""
        return _report.decode(await self._ask("/admin/report"))

    async def calls(self) -> int:
        """All calls so far."""
        return (await self.report()).calls

    async def calls_of(self, subject: int) -> int:
        """Those for one character."""
        return msgspec.json.decode(await self._ask(f"/admin/calls/{subject}"), type=_Calls).calls

    async def truth(self, subject: int) -> dict[str, Any]:
        """What a copy of a character must hold."""
        return msgspec.json.decode(await self._ask(f"/admin/truth/{subject}"), type=_Truth).kept

    async def clear(self) -> None:
        """Count from zero."""
        await self._client.send("POST", "/admin/clear")

    async def fail(self, subject: int, kind: str) -> None:
        """Have the next call for a character fail in this way."""
        body = msgspec.json.encode({"kind": kind, "subject": subject})
        answer = await self._client.send("POST", "/admin/faults", body)
        assert answer.status == 200, answer.body

    async def _ask(self, path: str) -> bytes:
        answer = await self._client.get(path)
        assert answer.status == 200, f"the game answered {answer.status} to {path}"
        return answer.body
