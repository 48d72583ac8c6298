"""Which pool a credential serves: all runs of its source, or those of one user."""

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument

_LONGEST_USER_ID = 80
_DEFAULT_SOURCE = "github"
"""The source of commands without `--source`."""


def pool_of(source: str, user_id: str | None = None) -> str:
    """The pool of one user's own credentials for a source; without a user, the one that serves all users."""
    require_name("source", source)
    if user_id is None:
        return source
    if len(require_name("user_id", user_id)) > _LONGEST_USER_ID:
        raise InvalidArgument("user_id", user_id[:32] + "…", f"must have at most {_LONGEST_USER_ID} characters")
    return f"{_prefix(source)}{user_id}"


def has_credentials(source: str, pool: str) -> bool:
    """Whether a pool is one of those that the credentials of `source` serve."""
    return pool == source or pool.startswith(_prefix(source))


def token_variable(source: str) -> str:
    """The environment variable with a token for a source that serves while none is stored: `GITHUB_TOKEN`."""
    return f"{source.upper().replace('-', '_')}_TOKEN"


def command_to_add(source: str) -> str:
    """The command that stores a credential for a source."""
    return "tidegate credentials add" + ("" if source == _DEFAULT_SOURCE else f" --source {source}")


def how_to_get_one(source: str) -> str:
    """What to do where a source has no credential."""
    return f"set {token_variable(source)} to a token, or store one with `{command_to_add(source)}`"


def _prefix(source: str) -> str:
    return f"{source}:user:"
