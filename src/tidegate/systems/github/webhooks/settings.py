"""Settings of GitHub webhooks."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, SecretStr, field_validator

_SHORTEST_SECRET = 16


class GithubWebhookSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of GitHub webhooks: secrets, size limit and retention."""

    secrets: tuple[SecretStr, ...] = Field(default=(), repr=False)
    """Secrets with which GitHub signs deliveries; several during a rotation. Without any, deliveries are refused."""
    largest_body: int = Field(default=25 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    """Maximum size of a delivery in bytes. GitHub's limit is 25 MiB."""
    kept: Annotated[timedelta, Ge(timedelta(days=4)), Le(timedelta(days=365))] = timedelta(days=14)
    """How long deliveries are kept to recognize redeliveries. GitHub allows redeliveries for three days."""

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
