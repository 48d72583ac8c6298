"""GitHub: profile, events, repositories, issues, pull requests, commits, comments and reviews of users.

`GithubSource` is all that others need; it is pure, and the engine of `tidegate.collect` does the rest.
"""

from tidegate.github.kinds import ALL, ESSENTIAL
from tidegate.github.settings import API_URL, GithubSettings
from tidegate.github.source import GithubSource

__all__ = ["ALL", "API_URL", "ESSENTIAL", "GithubSettings", "GithubSource"]
