"""GitHub: profile, events, repositories, issues, pull requests, commits, comments and reviews of users.

`GithubSource` is all that others need; it is pure, and the engine of `tidegate.engine` does the rest.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.github.kinds import ALL, ESSENTIAL, NAMES, bucket_of
    from tidegate.github.logins import parse_login, require_login
    from tidegate.github.settings import API_URL, GithubSettings
    from tidegate.github.source import GithubSource

__all__ = [
    "ALL",
    "API_URL",
    "ESSENTIAL",
    "NAMES",
    "GithubSettings",
    "GithubSource",
    "bucket_of",
    "parse_login",
    "require_login",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.github.kinds": "ALL ESSENTIAL NAMES bucket_of",
        "tidegate.github.logins": "parse_login require_login",
        "tidegate.github.settings": "API_URL GithubSettings",
        "tidegate.github.source": "GithubSource",
    },
)
