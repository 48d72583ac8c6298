"""Settings of the GitHub source."""

from pydantic import BaseModel, field_validator

from tidegate.core.errors import InvalidArgument
from tidegate.engine.credentials.pools import how_to_get_one, pool_of, token_variable
from tidegate.systems.github.kinds import ESSENTIAL, require_kinds
from tidegate.systems.github.requests import require_api_url

NAME = "github"
"""The name of the source."""
POOL = pool_of(NAME)
"""The pool of credentials for all users."""
VARIABLE = token_variable(NAME)
HOW_TO_GET_ONE = how_to_get_one(NAME)
API_URL = "https://api.github.com"


class GithubSettings(BaseModel, frozen=True, extra="forbid", validate_default=True):
    """Settings of the GitHub source: the API address and the kinds to collect."""

    api_url: str = API_URL
    """Address of the API of GitHub, GitHub Enterprise or a simulator. A database has the data of one address."""
    moved_from: str | None = None
    """The previous address of the same GitHub, if the data in the database was collected there."""
    kinds: tuple[str, ...] = tuple(sorted(ESSENTIAL))
    """The default kinds to collect: names of kinds, `essential` or `all`."""

    @field_validator("api_url", "moved_from")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        try:
            return None if value is None else require_api_url(value)
        except InvalidArgument as error:
            raise ValueError(error.reason) from None

    @field_validator("kinds")
    @classmethod
    def _are_kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(sorted(require_kinds(value)))
        except InvalidArgument as error:
            raise ValueError(error.reason) from None
