"""Names of users, as people write them and as we know them."""

import re
from urllib.parse import urlsplit

from tidegate.core.errors import InvalidArgument

LONGEST = 39
# Hyphens side by side or at the end are refused to new users only; old ones have them. An underscore stands before
# the short name of an enterprise that manages its users itself.
_LOGIN = re.compile(r"[a-z0-9][a-z0-9-]*(_[a-z0-9]+)?")
SITES = frozenset({"github.com", "www.github.com"})
_RULE = f"must be a GitHub login (letters, digits and hyphens, {LONGEST} at most), or a profile's address on github.com"


def require_login(text: str) -> str:
    """A login in small letters: GitHub does not tell `Octocat` from `octocat`, so neither do we."""
    login = text.lower()
    if not text.isascii() or len(login) > LONGEST or not _LOGIN.fullmatch(login):
        raise InvalidArgument("login", text[: 2 * LONGEST], _RULE)
    return login


def parse_login(text: str) -> str:
    """The login that somebody meant: `octocat`, `@octocat`, or the address of a profile."""
    written = text.strip()
    bare = written.removeprefix("@") if "/" not in written else _of_profile(written)
    try:
        return require_login(bare)
    except InvalidArgument:
        raise InvalidArgument("login", text[: 2 * LONGEST], _RULE) from None


def _of_profile(address: str) -> str:
    """The only part of the path; an address with more is that of a repository, or of something else.

    On another site the same name may be somebody else.
    """
    link = urlsplit(address if "://" in address else f"https://{address}")
    is_profile = link.scheme in ("http", "https") and link.netloc.lower() in SITES
    return link.path.strip("/") if is_profile else ""
