"""Explains why GitHub refused a request: its message, missing scopes of the token, a missing single sign-on."""

from urllib.parse import urlsplit

import msgspec

from tidegate.core.errors import UNDECODABLE
from tidegate.engine.upstream import Answer

_LONGEST_MESSAGE = 300
_REFUSED = frozenset({403, 404})
_IMPLIED = {
    "repo": {"repo:status", "repo_deployment", "public_repo", "repo:invite", "security_events"},
    "admin:org": {"write:org", "read:org"},
    "write:org": {"read:org"},
    "user": {"read:user", "user:email", "user:follow"},
    "project": {"read:project"},
}
"""Scopes that another scope includes."""


class _Message(msgspec.Struct):
    message: str = ""


def explain(answer: Answer) -> str:
    """Status, message, and missing rights of the token."""
    try:
        message = msgspec.json.decode(answer.body, type=_Message).message
    except UNDECODABLE:
        message = ""
    said = f"{answer.status}: {message[:_LONGEST_MESSAGE]}" if message else f"status {answer.status}"
    lacks = [lack for lack in (_missing_sign_on(answer), _missing_scope(answer)) if lack]
    return "; ".join([said, *lacks])


def left_out(answer: Answer) -> list[str]:
    """Why a list is incomplete: organizations that require an authorization of the token are omitted."""
    rule, _, rest = answer.headers.get("x-github-sso", "").partition(";")
    if answer.status != 200 or rule.strip() != "partial-results":
        return []
    numbers = rest.strip().removeprefix("organizations=")[:_LONGEST_MESSAGE]
    return [f"GitHub omitted the organizations {numbers}: authorize the token for their single sign-on"]


def _missing_sign_on(answer: Answer) -> str:
    rule, _, rest = answer.headers.get("x-github-sso", "").partition(";")
    if answer.status not in _REFUSED or rule.strip() != "required":
        return ""
    link = urlsplit(rest.strip().removeprefix("url="))
    where = f" at {link.scheme}://{link.netloc}{link.path}" if link.netloc else ""
    return f"the organization requires single sign-on: authorize the token{where}"


def _missing_scope(answer: Answer) -> str:
    """The message about a missing scope. Only classic tokens have scopes."""
    needed, granted = (_scopes(answer, name) for name in ("x-accepted-oauth-scopes", "x-oauth-scopes"))
    if answer.status not in _REFUSED or not needed or granted is None:
        return ""
    held = granted.union(*(_implied(scope) for scope in granted))
    if needed & held:
        return ""
    has = f"it has {', '.join(sorted(granted))}" if granted else "it has none"
    return f"the token may lack a scope: GitHub asks for {' or '.join(sorted(needed))}, and {has}"


def _implied(scope: str) -> set[str]:
    direct = _IMPLIED.get(scope, set[str]())
    return direct.union(*(_implied(each) for each in direct))


def _scopes(answer: Answer, name: str) -> set[str] | None:
    said = answer.headers.get(name)
    return None if said is None else {scope.strip() for scope in said.split(",") if scope.strip()}
