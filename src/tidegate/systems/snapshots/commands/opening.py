"""Opens snapshots for a command, and parses its arguments."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidArgument

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.snapshots.model import SnapshotSubject
    from tidegate.systems.snapshots.service import Snapshots


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Snapshots]:
    """Open the snapshots for the length of a block. Raises `InvalidSettings` if no kind is configured."""
    from tidegate.connections import open_context
    from tidegate.systems.snapshots.kinds import require_kinds
    from tidegate.systems.snapshots.service import open_snapshots

    kinds = require_kinds(settings)
    async with open_context(settings) as context, open_snapshots(context, kinds) as snapshots:
        yield snapshots


def parse_subject(settings: Settings, text: str) -> SnapshotSubject:
    """Read a subject such as `character/4711`. Raises `InvalidArgument`, which names the configured kinds."""
    from tidegate.systems.snapshots.kinds import require_kinds
    from tidegate.systems.snapshots.model import SnapshotSubject

    known = sorted(kind.name for kind in require_kinds(settings))
    kind, slash, key = text.partition("/")
    if not slash or not key:
        raise InvalidArgument("subject", text[:80], f"must be a kind and a key, such as {known[0]}/4711")
    if kind not in known:
        raise InvalidArgument("subject", text[:80], f"no kind {kind!r}; the configured kinds are {', '.join(known)}")
    return SnapshotSubject(kind, key)
