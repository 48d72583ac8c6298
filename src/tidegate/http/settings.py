"""Settings of the HTTP server."""

from collections.abc import Iterable
from datetime import timedelta
from ipaddress import ip_network
from typing import Self

from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument

SHORTEST_KEY = 16
SPARE_FILES = 500
"""Open files that a process needs in addition to `most_watchers`, for connections to servers and short requests."""
PRIVATE_NETWORKS = (
    *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
    *("::1/128", "fc00::/7", "fe80::/10"),
)
_KEY_RULE = f"must be {SHORTEST_KEY} printable ASCII characters or more, without a space (try `openssl rand -hex 32`)"


class HttpSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the HTTP server: addresses, keys, limits."""

    host: str = "127.0.0.1"
    """The address to listen on. Addresses other than loopback need an API key."""
    port: int = Field(default=8321, ge=0, le=65535)
    """The port to listen on; 0: any free port, which is logged at the start."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """The key that callers send as `Authorization: Bearer` or enter in the dashboard. Required if other machines can
    connect. It has the role `operate`, which may do everything."""
    api_keys: tuple[SecretStr, ...] = Field(default=(), repr=False)
    """Further keys with the role `operate`, so that keys can be replaced without an interruption."""
    read_keys: tuple[SecretStr, ...] = Field(default=(), repr=False)
    """Keys with the role `read`, which may read everything and change nothing."""
    session_lasts: timedelta = Field(default=timedelta(hours=12), ge=timedelta(minutes=1), le=timedelta(days=30))
    """How long a browser stays logged in. Sessions end earlier if their key is removed from the settings."""
    proxies: int = Field(default=0, ge=0, le=10)
    """Number of your proxies that a request passes at most. Each adds the address that it saw to `X-Forwarded-For`;
    limits per client address use the address that the outermost proxy saw. 0: `X-Forwarded-For` is ignored."""
    proxy_networks: tuple[str, ...] = PRIVATE_NETWORKS
    """Networks of these proxies. `X-Forwarded-For` from other addresses is ignored. The default is loopback and private
    networks; add the networks of a public proxy or CDN."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that are accepted without a key, in addition to `localhost` and loopback addresses."""
    open_metrics: bool = False
    """Whether `/metrics` is answered without a key."""
    largest_body: int = Field(default=1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    """The largest request body, in bytes."""
    answer_within: timedelta = Field(default=timedelta(seconds=30), ge=timedelta(seconds=1), le=timedelta(minutes=10))
    """Time limit of a request; event streams are not limited."""
    most_listeners: int = Field(default=500, ge=1, le=100_000)
    """Maximum number of open event streams per process, without those of waiting rooms."""
    most_watchers: int = Field(default=10_000, ge=1, le=100_000)
    """Maximum number of visitors per process with a live stream of their place; further visitors poll. Each stream
    needs an open file."""

    visitors_per_address: int = Field(default=20, ge=0, le=1_000_000)
    """Number of new visitors that one address may add at once to waiting rooms without authentication, in all
    processes together; 0: unlimited. Raise it if many visitors share an address (offices, mobile networks)."""
    visitor_again_after: timedelta = Field(
        default=timedelta(seconds=5), ge=timedelta(milliseconds=1), le=timedelta(hours=1)
    )
    """Time after which an address at this limit may add one more visitor."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys. If there are none, only clients on this machine are answered."""
        return (*self.keys_to_operate, *self.keys_to_read)

    @property
    def keys_to_operate(self) -> tuple[str, ...]:
        """Keys with the role `operate`."""
        return _values_of((*self.api_keys, *([] if self.api_key is None else [self.api_key])))

    @property
    def keys_to_read(self) -> tuple[str, ...]:
        """Keys with the role `read`."""
        return _values_of(self.read_keys)

    @field_validator("host", "allowed_hosts")
    @classmethod
    def _are_names(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        try:
            for name in (value,) if isinstance(value, str) else value:
                require_name("host", name)
        except InvalidArgument as error:
            raise ValueError(error.reason) from None
        return value

    @field_validator("proxy_networks")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            ip_network(each)
        return value

    @field_validator("api_key", "api_keys", "read_keys")
    @classmethod
    def _are_hard_to_guess(
        cls, value: SecretStr | tuple[SecretStr, ...] | None
    ) -> SecretStr | tuple[SecretStr, ...] | None:
        for secret in (value,) if isinstance(value, SecretStr) else value or ():
            text = secret.get_secret_value()
            if len(text) < SHORTEST_KEY or not text.isascii() or not text.isprintable() or " " in text:
                raise ValueError(_KEY_RULE)
        return value

    @model_validator(mode="after")
    def _have_one_role_each(self) -> Self:
        if set(self.keys_to_operate) & set(self.keys_to_read):
            raise ValueError("a key of read_keys must not also be in api_key or api_keys")
        return self


def _values_of(secrets: Iterable[SecretStr]) -> tuple[str, ...]:
    return tuple(secret.get_secret_value() for secret in secrets)
