"""Webhooks: every change of the world is sent to the hooks that are registered, signed as GitHub signs.

As with GitHub, a delivery is sent once, has ten seconds to be answered, and is not sent again unless that is asked for.
`Behaviour.webhook_repeats` and `Behaviour.webhook_disorder` add what happens now and then: a delivery is sent twice, or
after the one that followed it.
"""

import asyncio
import hmac
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.github.config import Behaviour
from tidegate_simulators.github.profiles import repository, simple_user
from tidegate_simulators.github.repository import Repository
from tidegate_simulators.github.world import World

_ANSWER_WITHIN_S = 10
_SHORTEST_SECRET = 8
_AT_ONCE = 20


@dataclass(frozen=True)
class Hook:
    """An address that gets the deliveries of some events."""

    id: int
    url: str
    secret: str
    events: frozenset[str] | None = None
    """None: all."""


@dataclass
class Delivery:
    """One change on its way to one hook, and how its attempts ended."""

    id: str
    hook: Hook
    event: str
    action: str | None
    body: bytes
    attempts: list["Attempt"] = field(default_factory=list["Attempt"])

    @property
    def is_delivered(self) -> bool:
        """Whether an attempt was answered with 2xx."""
        return any(200 <= attempt.status < 300 for attempt in self.attempts)


@dataclass(frozen=True)
class Attempt:
    """One request of a delivery."""

    status: int
    """0: no answer in time."""
    took_ms: float


class Webhooks:
    """Sends deliveries in the background; `await settled()` waits for all of them."""

    def __init__(self, world: World, behaviour: Behaviour) -> None:
        self._world, self._behaviour = world, behaviour
        self.hooks: list[Hook] = []
        self.deliveries: list[Delivery] = []
        self._waiting: deque[Delivery] = deque()
        self._held: Delivery | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._work, self._still = asyncio.Event(), asyncio.Event()
        self._still.set()
        self._sender: asyncio.Task[None] | None = None
        world.on_change = self.report

    def start(self) -> None:
        """Send deliveries from now on."""
        self._sender = asyncio.create_task(self._run(), name="send webhooks")

    async def stop(self) -> None:
        """Stop sending; unsent deliveries are lost."""
        for task in (self._sender, *self._sending):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._sender = None

    def register(self, url: str, secret: str, events: Sequence[str] | None = None) -> Hook:
        """A hook for some events, or for all; it receives a ping when it is created."""
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument("url", url, "must be an address of HTTP")
        if len(secret) < _SHORTEST_SECRET:
            raise InvalidArgument("secret", "...", f"must have {_SHORTEST_SECRET} characters or more")
        hook = Hook(len(self.hooks) + 1, url, secret, None if events is None else frozenset(events))
        self.hooks.append(hook)
        self._send(hook, "ping", None, {"zen": "Keep it logically awesome.", "hook_id": hook.id})
        return hook

    def report(self, event: str, action: str | None, found: Repository, parts: Mapping[str, Any]) -> None:
        """Send a change to all hooks that want it."""
        if not self.hooks:
            return
        head = {} if action is None else {"action": action}
        payload = {**head, "repository": repository(found), "sender": simple_user(found.owner), **parts}
        for hook in self.hooks:
            if hook.events is None or event in hook.events:
                self._send(hook, event, action, payload)

    def redeliver(self, delivery_id: str | None = None) -> int:
        """Send a delivery again, or all that failed; returns how many."""
        chosen = [each for each in self.deliveries if each.id == delivery_id or delivery_id is None]
        if delivery_id is not None and not chosen:
            raise NotFound("delivery", delivery_id)
        again = [each for each in chosen if delivery_id is not None or not each.is_delivered]
        for each in again:
            self._enqueue(each)
        return len(again)

    async def settled(self) -> None:
        """Wait until everything is sent and answered."""
        await self._still.wait()

    def _send(self, hook: Hook, event: str, action: str | None, payload: Mapping[str, Any]) -> None:
        delivery = Delivery(str(uuid.uuid4()), hook, event, action, msgspec.json.encode(payload))
        self.deliveries.append(delivery)
        bits = draw(self._world.shape.seed, len(self.deliveries), 171)
        if self._held is None and fraction(bits) < self._behaviour.webhook_disorder:
            self._held = delivery
            self._still.clear()
            self._work.set()
            return
        self._enqueue(delivery)
        if fraction(draw(bits, 1)) < self._behaviour.webhook_repeats:
            self._enqueue(delivery)
        if self._held is not None:
            held, self._held = self._held, None
            self._enqueue(held)

    def _enqueue(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self._still.clear()
        self._work.set()

    async def _run(self) -> None:
        async with ClientSession(timeout=ClientTimeout(total=_ANSWER_WITHIN_S)) as session:
            while True:
                await self._work.wait()
                self._work.clear()
                while self._waiting:
                    await self._send_next(session)
                if self._held is not None:  # nothing followed it
                    held, self._held = self._held, None
                    self._enqueue(held)
                elif not self._sending:
                    self._still.set()

    async def _send_next(self, session: ClientSession) -> None:
        """In order without disorder: as GitHub mostly does."""
        delivery = self._waiting.popleft()
        if self._behaviour.webhook_disorder == 0:
            await self._post(session, delivery)
            return
        while len(self._sending) >= _AT_ONCE:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._post(session, delivery))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._work.set()

    async def _post(self, session: ClientSession, delivery: Delivery) -> None:
        began, status = time.monotonic(), 0
        try:
            async with session.post(delivery.hook.url, data=delivery.body, headers=_headers(delivery)) as answer:
                await answer.read()
                status = answer.status
        except (ClientError, TimeoutError, OSError):
            status = 0
        delivery.attempts.append(Attempt(status, (time.monotonic() - began) * 1000))


def sign(secret: str, body: bytes) -> str:
    """The value of `X-Hub-Signature-256`."""
    return f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"


def _headers(delivery: Delivery) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/5110057",
        "X-GitHub-Hook-ID": str(delivery.hook.id),
        "X-GitHub-Event": delivery.event,
        "X-GitHub-Delivery": delivery.id,
        "X-Hub-Signature-256": sign(delivery.hook.secret, delivery.body),
    }
