"""FastAPI + redis-py: joins and places of a waiting room, written by hand; one process.

A place is the rank in a sorted set. There are no passes: any client can read and take the place of any user.
"""

import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from redis.asyncio import Redis

server = Redis.from_url(sys.argv[1])


class Arrival(BaseModel):
    user: str


class Place(BaseModel):
    room: str
    user: str
    position: int
    waiting: int


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    yield
    await server.aclose()


app = FastAPI(lifespan=lifespan)


async def place_of(room: str, user: str) -> Place:
    async with server.pipeline(transaction=False) as pipeline:
        rank, waiting = await pipeline.zrank(f"line:{room}", user).zcard(f"line:{room}").execute()
    if rank is None:
        raise HTTPException(404)
    return Place(room=room, user=user, position=rank + 1, waiting=waiting)


@app.post("/rooms/{room}/entries")
async def join(room: str, arrival: Arrival) -> Place:
    await server.zadd(f"line:{room}", {arrival.user: time.time()}, nx=True)
    return await place_of(room, arrival.user)


@app.get("/rooms/{room}/place/{user}")
async def show(room: str, user: str) -> Place:
    return await place_of(room, user)


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=sockets)
        print(json.dumps({"port": self.servers[0].sockets[0].getsockname()[1]}), flush=True)


if __name__ == "__main__":
    config = uvicorn.Config(app, port=0, loop="uvloop", http="httptools", log_config=None, access_log=False)
    Server(config).run()
