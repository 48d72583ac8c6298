"""How this installation answers over HTTP. It stands here and not in `tidegate.http`, which lies above the settings."""

from collections.abc import Iterable
from datetime import timedelta
from ipaddress import ip_network
from typing import Self

from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument

SHORTEST_KEY = 16
SPARE_FILES = 500
"""Open files of a process beside those of `most_watchers`: connections to servers, and short requests."""
PRIVATE_NETWORKS = (
    *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
    *("::1/128", "fc00::/7", "fe80::/10"),
)
_KEY_RULE = f"must be {SHORTEST_KEY} printable ASCII characters or more, without a space (try `openssl rand -hex 32`)"


class HttpSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Where to listen, and whom to answer."""

    host: str = "127.0.0.1"
    """The address to listen on. Anything but loopback needs an API key."""
    port: int = Field(default=8321, ge=0, le=65535)
    """The port to listen on; 0: any free one, which is told at the start."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """What callers must send as `Authorization: Bearer`, or type where the dashboard asks for it. Needed as soon as
    others than this machine can connect. It may do everything (role `operate`)."""
    api_keys: tuple[SecretStr, ...] = Field(default=(), repr=False)
    """Further keys of the role `operate`, so that one can be replaced while it is in use."""
    read_keys: tuple[SecretStr, ...] = Field(default=(), repr=False)
    """Keys of the role `read`: whoever has one sees everything that is told, and can change nothing."""
    session_lasts: timedelta = Field(default=timedelta(hours=12), ge=timedelta(minutes=1), le=timedelta(days=30))
    """How long a browser stays logged in. Sessions end earlier where their key is taken out of the settings."""
    proxies: int = Field(default=0, ge=0, le=10)
    """How many proxies of yours a request passes at most. Each adds the address that it saw to `X-Forwarded-For`; the
    limits per client address use the one that the outermost proxy saw. 0: `X-Forwarded-For` is ignored."""
    proxy_networks: tuple[str, ...] = PRIVATE_NETWORKS
    """Networks of these proxies. A connection from elsewhere is the client itself, whatever it says in
    `X-Forwarded-For`. The default are loopback and private networks; list those of a public proxy or CDN."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which this machine may be called without a key, beside `localhost` and loopback addresses."""
    open_metrics: bool = False
    """Whether `/metrics` is answered without a key."""
    largest_body: int = Field(default=1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    """The largest request body, in bytes."""
    answer_within: timedelta = Field(default=timedelta(seconds=30), ge=timedelta(seconds=1), le=timedelta(minutes=10))
    """How long a request may take; a stream of events lasts as long as its run."""
    most_listeners: int = Field(default=500, ge=1, le=100_000)
    """Streams of events that may be open at once in one process, those of waiting rooms not counted."""
    most_watchers: int = Field(default=10_000, ge=1, le=100_000)
    """Visitors of waiting rooms who may watch their places live at once in one process; others ask again by themselves.
    Each needs an open file."""

    visitors_per_address: int = Field(default=20, ge=0, le=1_000_000)
    """New visitors whom one address may bring at once to waiting rooms that take in anybody, in all processes together;
    0: any number. Raise it where many visitors share an address (offices, mobile networks)."""
    visitor_again_after: timedelta = Field(
        default=timedelta(seconds=5), ge=timedelta(milliseconds=1), le=timedelta(hours=1)
    )
    """After how long such an address may bring another visitor."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that is good for something; where there is none, only this machine is answered."""
        return (*self.keys_to_operate, *self.keys_to_read)

    @property
    def keys_to_operate(self) -> tuple[str, ...]:
        """Those that may do everything."""
        return _told((*self.api_keys, *([] if self.api_key is None else [self.api_key])))

    @property
    def keys_to_read(self) -> tuple[str, ...]:
        """Those that may look."""
        return _told(self.read_keys)

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
            raise ValueError("the same key is among those that operate and among read_keys; what may it do?")
        return self


def _told(secrets: Iterable[SecretStr]) -> tuple[str, ...]:
    return tuple(secret.get_secret_value() for secret in secrets)
