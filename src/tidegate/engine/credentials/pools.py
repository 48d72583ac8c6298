"""Which pool a credential serves: everybody's, or that of one user."""

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument

GENERAL_POOL = "github"
"""The pool of credentials that serve everybody."""
_OF_USER = f"{GENERAL_POOL}:user:"
_LONGEST_USER_ID = 80


def pool_of(user_id: str | None) -> str:
    """The pool of one user's own credentials; of None, everybody's."""
    if user_id is None:
        return GENERAL_POOL
    if len(require_name("user_id", user_id)) > _LONGEST_USER_ID:
        raise InvalidArgument("user_id", user_id[:32] + "…", f"must have at most {_LONGEST_USER_ID} characters")
    return _OF_USER + user_id


def has_credentials(pool: str) -> bool:
    """Whether a pool is one of those that credentials serve; other sources have pools of their own."""
    return pool == GENERAL_POOL or pool.startswith(_OF_USER)
