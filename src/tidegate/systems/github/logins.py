"""Logins of users: validation and parsing."""

import re
from urllib.parse import urlsplit

from tidegate.core.errors import InvalidArgument

LONGEST = 39
# New users cannot have adjacent or trailing hyphens, but older ones do. An underscore precedes the short name of an
# enterprise with managed users.
_LOGIN = re.compile(r"[a-z0-9][a-z0-9-]*(_[a-z0-9]+)?")
SITES = frozenset({"github.com", "www.github.com"})
_RULE = f"must be a GitHub login (letters, digits and hyphens, {LONGEST} at most), or a profile's address on github.com"


def require_login(text: str) -> str:
    """Return a login in lower case, since GitHub ignores case; raises `InvalidArgument` if it is invalid."""
    login = text.lower()
    if not text.isascii() or len(login) > LONGEST or not _LOGIN.fullmatch(login):
        raise InvalidArgument("login", text[: 2 * LONGEST], _RULE)
    return login


def parse_login(text: str) -> str:
    """Parse a login that a user typed: `octocat`, `@octocat`, or the URL of a profile."""
    written = text.strip()
    bare = written.removeprefix("@") if "/" not in written else _of_profile(written)
    try:
        return require_login(bare)
    except InvalidArgument:
        raise InvalidArgument("login", text[: 2 * LONGEST], _RULE) from None


def _of_profile(address: str) -> str:
    """The login in a profile's URL; empty for other URLs.

    The same name on another site may belong to another user.
    """
    link = urlsplit(address if "://" in address else f"https://{address}")
    is_profile = link.scheme in ("http", "https") and link.netloc.lower() in SITES
    # A path with further parts is refused by the check of the login.
    return link.path.strip("/") if is_profile else ""
