"""How Kafka is reached, and how our topics are made there."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, SecretStr, model_validator

Security = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class KafkaSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How Kafka is reached, where `transport` is `kafka`."""

    servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Some brokers of the cluster, `host:port`, with commas between them; the others are found through these."""
    security: Security = "PLAINTEXT"
    """How the connection is protected."""
    mechanism: Mechanism = "SCRAM-SHA-512"
    """How we prove who we are, with one of the SASL kinds of `security`."""
    user: str | None = None
    """Our name, with SASL."""
    password: SecretStr | None = Field(default=None, repr=False)
    """Our password, with SASL."""
    ca_file: Path | None = None
    """The certificates that the brokers' must be signed by, with SSL; unset: those that the system trusts."""
    replication: int = Field(default=3, ge=1, le=9)
    """On how many brokers a message lies. 1 where there is one broker: then its disk is the only copy."""
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=100)
    """Stands before the names of our topics and groups, where several installations share a cluster."""
    session: Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """A process that gave no sign of life for so long is dead: what it held goes to others."""
    answer_within: Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """A cluster that takes longer to do what we ask counts as away."""

    @property
    def address(self) -> str:
        """The cluster as it is named in errors and in the log."""
        return f"Kafka at {self.servers}"

    @model_validator(mode="after")
    def _sasl_needs_a_name(self) -> Self:
        if self.security.startswith("SASL") and (self.user is None or self.password is None):
            raise ValueError(f"{self.security} needs user and password")
        return self
