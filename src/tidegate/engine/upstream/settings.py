"""Settings of calls to upstreams: connections, timeouts, sizes and redirects."""

from datetime import timedelta

from pydantic import BaseModel, Field, field_validator

from tidegate import __version__
from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream.addresses import PrivateHosts
from tidegate.engine.upstream.redirects import MOST_REDIRECTS

_NONE = timedelta(0)


class UpstreamSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of calls to upstreams: connections, timeouts, sizes and redirects."""

    connections: int = Field(default=400, ge=1)
    """Connections open at once to all hosts together; further requests wait for a free one."""
    connections_per_host: int = Field(default=100, ge=1)
    """Connections open at once to one host."""
    connect_timeout: timedelta = Field(default=timedelta(seconds=10), gt=_NONE)
    """How long a connection may take to be made, with its encryption."""
    read_timeout: timedelta = Field(default=timedelta(seconds=30), gt=_NONE)
    """How long an upstream may be silent, before its answer or in the middle of it."""
    total_timeout: timedelta = Field(default=timedelta(seconds=90), gt=_NONE)
    """How long a request may take altogether: name, wait for a connection, and body."""
    keep_alive: timedelta = Field(default=timedelta(seconds=30), gt=_NONE)
    """How long an idle connection is kept for the next request."""
    dns_cache: timedelta = Field(default=timedelta(minutes=1), gt=_NONE)
    """How long the address of a host is remembered."""
    largest_body: int = Field(default=32 * 1024 * 1024, ge=1)
    """Bytes in a body after decompression; an answer that grows beyond is refused while it arrives."""
    most_redirects: int = Field(default=MOST_REDIRECTS, ge=0, le=20)
    """How many redirects of one call are followed, in collection and for snapshots. Each is a request of its own, and
    waits for a permit of its own."""
    private_hosts: tuple[str, ...] = ()
    """Hosts that crawls and redirects may lead to although their addresses are not public: names, addresses, or
    networks such as `10.1.0.0/16`. Hosts that the settings or a source of yours name are always allowed."""
    user_agent: str = Field(default=f"tidegate/{__version__}", min_length=1)
    """The User-Agent header; some upstreams refuse requests without it."""

    @field_validator("private_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            PrivateHosts(value)
        except InvalidArgument as error:
            raise ValueError(str(error)) from None
        return value
