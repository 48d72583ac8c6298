"""Settings of the webhooks."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, SecretStr, field_validator

_SHORTEST_SECRET = 16


class GithubWebhookSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How deliveries of GitHub's webhooks are received."""

    secrets: tuple[SecretStr, ...] = Field(default=(), repr=False)
    """Secrets with which GitHub signs deliveries. Several while one is replaced. Without any, nothing is received."""
    largest_body: int = Field(default=25 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    """The largest delivery, in bytes. GitHub sends none above 25 MiB."""
    kept: Annotated[timedelta, Ge(timedelta(days=4)), Le(timedelta(days=365))] = timedelta(days=14)
    """For how long deliveries are known, so that one that is sent again is recognized. GitHub sends a delivery again
    for three days at most."""

    @field_validator("secrets")
    @classmethod
    def _are_hard_to_guess(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for secret in value:
            text = secret.get_secret_value()
            if len(text) < _SHORTEST_SECRET or not text.isascii() or not text.isprintable():
                raise ValueError(
                    f"must be {_SHORTEST_SECRET} printable ASCII characters or more (try `openssl rand -hex 32`)"
                )
        return value
