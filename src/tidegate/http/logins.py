"""Logins in requests: written as people write them, and understood as the commands understand them."""

from typing import Annotated

from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.http.problems import ProblemType, Trouble
from tidegate.systems.github.logins import LONGEST, parse_login

_LOGIN = "[A-Za-z0-9][A-Za-z0-9-]*(_[A-Za-z0-9]+)?"
_PROFILE = "https://github.com/"


def _written(before: str) -> dict[str, object]:
    return {"pattern": f"^{before.replace('.', '[.]')}{_LOGIN}$", "maxLength": len(before) + LONGEST}


Login = Annotated[
    str,
    Meta(
        max_length=200,
        description="A login, with or without an @ before it, or the address of a profile.",
        # Said, and not checked, by the type: what is wrong is told in words, and not as an expression.
        extra_json_schema={"anyOf": [_written(""), _written("@"), _written(_PROFILE)]},
    ),
]


def read_login(text: str, field: str = "login") -> str:
    """The login that is meant; a problem that names the field where it is none."""
    try:
        return parse_login(text)
    except InvalidArgument as error:
        raise Trouble(ProblemType.INVALID, str(error), field=field) from None
