"""FastAPI + redis-py + SQLAlchemy: the route of a snapshot, written by hand; one process.

`/plain/...` answers with a model, as the tutorials do: from the cache, else from the database and then into the cache.
`/careful/...` is the optimized version: the snapshot stays encoded, and only what
depends on the moment is added. Neither asks for refreshes, collapses requests, or knows of anything that changed
meanwhile.
"""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from redis.asyncio import Redis
from sqlalchemy import DateTime, Text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

URL, PATH = sys.argv[1], sys.argv[2]
TTL, CACHED_S = timedelta(minutes=15), 3600
engine = create_async_engine(f"sqlite+aiosqlite:///{PATH}")
sessions = async_sessionmaker(engine, expire_on_commit=False)
cache = Redis.from_url(URL)


class Base(DeclarativeBase):
    pass


class Snapshot(Base):
    __tablename__ = "peer_snapshots"
    kind: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    body: Mapped[str] = mapped_column(Text)
    last_updated_at: Mapped[datetime] = mapped_column(DateTime)
    last_checked_at: Mapped[datetime] = mapped_column(DateTime)


class SnapshotView(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    snapshot: Any
    freshness: str
    last_updated_at: datetime
    last_checked_at: datetime
    failure: str | None = None
    update_queued: bool
    estimated_wait_ms: int | None


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    yield
    await cache.aclose()
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def find(session: AsyncSession, kind: str, key: str) -> Snapshot:
    row = await session.get(Snapshot, (kind, key))
    if row is None:
        raise HTTPException(404)
    return row


@app.get("/plain/{kind}/{key}")
async def plain(kind: str, key: str) -> SnapshotView:
    name = f"plain:{kind}:{key}"
    cached = await cache.get(name)
    if cached is None:
        async with sessions() as session:
            row = await find(session, kind, key)
        known = {
            "snapshot": json.loads(row.body),
            "lastUpdatedAt": row.last_updated_at.replace(tzinfo=UTC).isoformat(),
            "lastCheckedAt": row.last_checked_at.replace(tzinfo=UTC).isoformat(),
        }
        await cache.set(name, json.dumps(known), ex=CACHED_S)
    else:
        known = json.loads(cached)
    is_fresh = datetime.now(UTC) - datetime.fromisoformat(known["lastCheckedAt"]) < TTL
    return SnapshotView(
        **known, freshness="FRESH" if is_fresh else "STALE", updateQueued=not is_fresh, estimatedWaitMs=None
    )


@app.get("/careful/{kind}/{key}")
async def careful(kind: str, key: str) -> Response:
    name = f"careful:{kind}:{key}"
    checked, text = await cache.hmget(name, "checked", "text")
    if text is None or checked is None:
        async with sessions() as session:
            row = await find(session, kind, key)
        checked = row.last_checked_at.replace(tzinfo=UTC).isoformat().encode()
        updated = row.last_updated_at.replace(tzinfo=UTC).isoformat()
        times = f'"lastUpdatedAt":"{updated}","lastCheckedAt":"{checked.decode()}"'
        text = f'{{"snapshot":{row.body},{times},"failure":null'.encode()
        await cache.hset(name, mapping={"checked": checked, "text": text})
        await cache.expire(name, CACHED_S)
    is_fresh = datetime.now(UTC) - datetime.fromisoformat(checked.decode()) < TTL
    tail = b',"freshness":"FRESH","updateQueued":false,"estimatedWaitMs":null}'
    if not is_fresh:
        tail = b',"freshness":"STALE","updateQueued":true,"estimatedWaitMs":null}'
    return Response(text + tail, media_type="application/json")


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=sockets)
        print(json.dumps({"port": self.servers[0].sockets[0].getsockname()[1]}), flush=True)


if __name__ == "__main__":
    config = uvicorn.Config(app, port=0, loop="uvloop", http="httptools", log_config=None, access_log=False)
    Server(config).run()
