"""GitHub: profile, events, repositories, issues, pull requests, commits, comments and reviews of users.

`GithubSource` is all that others need; it is pure, and the engine of `tidegate.collect` does the rest.
"""

from tidegate.github.kinds import ALL, ESSENTIAL
from tidegate.github.source import API_URL, GithubSource

__all__ = ["ALL", "API_URL", "ESSENTIAL", "GithubSource"]
