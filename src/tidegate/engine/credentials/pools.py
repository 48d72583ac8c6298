"""Names of pools: one shared pool per source, and one per user with own credentials."""

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
    """Whether the credentials of `source` serve a pool."""
    return pool == source or pool.startswith(_prefix(source))


def token_variable(source: str) -> str:
    """The environment variable with a token for a source that serves while none is stored: `GITHUB_TOKEN`."""
    return f"{source.upper().replace('-', '_')}_TOKEN"


def command_to_add(source: str) -> str:
    """The command that stores a credential for a source."""
    return "tidegate credentials add" + ("" if source == _DEFAULT_SOURCE else f" --source {source}")


def how_to_get_one(source: str) -> str:
    """Instructions for a source that has no credential."""
    return f"set {token_variable(source)} to a token, or store one with `{command_to_add(source)}`"


def _prefix(source: str) -> str:
    return f"{source}:user:"
