"""GitHub: users, organizations and repositories, and what is in the repositories.

`GithubSource` is all that others need; it is pure, and the engine of `tidegate.engine` does the rest.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.github.kinds import ALL, CONVERSATIONS, ESSENTIAL, NAMES, bucket_of
    from tidegate.systems.github.settings import API_URL, GithubSettings
    from tidegate.systems.github.source import GithubSource
    from tidegate.systems.github.statistics import Statistics
    from tidegate.systems.github.subjects import parse_login, parse_subject, require_login

__all__ = [
    "ALL",
    "API_URL",
    "CONVERSATIONS",
    "ESSENTIAL",
    "NAMES",
    "GithubSettings",
    "GithubSource",
    "Statistics",
    "bucket_of",
    "parse_login",
    "parse_subject",
    "require_login",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.github.kinds": "ALL CONVERSATIONS ESSENTIAL NAMES bucket_of",
        "tidegate.systems.github.subjects": "parse_login require_login parse_subject",
        "tidegate.systems.github.settings": "API_URL GithubSettings",
        "tidegate.systems.github.source": "GithubSource",
        "tidegate.systems.github.statistics": "Statistics",
    },
)
