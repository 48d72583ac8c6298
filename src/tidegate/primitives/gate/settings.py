"""Default limits of a credential, for what the headers of the upstream do not state."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field


class CredentialLimits(BaseModel):
    """Bounds that the upstream's headers do not tell."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    concurrency: int = Field(default=50, ge=1, le=10_000)
    """Calls of one credential that may be under way at once. Each refusal for a secondary limit halves what was under
    way; that recovers slowly."""
    first_concurrency: int = Field(default=4, ge=1, le=10_000)
    """Calls at once with which a new credential begins, where the upstream tells what is left. Each answer allows one
    more, up to `concurrency`: a limit that is not announced is found by a few refusals, and not by fifty."""
    per_minute: int = Field(default=840, ge=1, le=10**9)
    """Calls of one credential in any minute, as the upstream sees it. Refusals lower it like `concurrency`."""
    one_at_a_time: frozenset[str] = frozenset({"graphql"})
    """Buckets in which a credential makes one call at a time. The upstream bounds the computing time of a minute, and
    calls that follow each other compute no longer than they take."""
    floor: int = Field(default=100, ge=0)
    """Permits of each window that are never spent, for other programs that use the same credential. No limit depends
    on them: a permit with an unknown outcome counts as spent."""
    floor_share: float = Field(default=0.02, ge=0, le=1, allow_inf_nan=False)
    """Largest share of a limit that `floor` takes, rounded down: 100 of 5,000 calls, 1 of 60, none of 30 searches."""

    def floor_of(self, limit: int) -> int:
        """Permits of a window with this limit that are never spent."""
        return min(self.floor, int(limit * self.floor_share))

    window: timedelta = Field(default=timedelta(hours=1), ge=timedelta(milliseconds=1), le=timedelta(days=31))
    """Maximum duration of a window, for calls without an answer."""
    metered: bool = True
    """Whether the upstream tells what is left. Where it does not, there is nothing to find out by a probe: as many
    calls go at once as `concurrency` allows."""
    patience: timedelta = Field(default=timedelta(minutes=1), ge=timedelta(0), le=timedelta(days=31))
    """How long a job waits for the credential it had before, while another could serve it."""
