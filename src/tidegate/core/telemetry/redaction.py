"""Removes secrets from values before they are shown or stored.

Two methods complement each other. The *name* of a field marks its value as secret (`password`, `access_token`,
`X-Api-Key`), whatever the value looks like. The *shape* of a secret is found within any text (the password in a URL, a
GitHub token, a private key), whatever its name. In doubt, a value is hidden.
"""

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast
from urllib.parse import quote, quote_plus, unquote_plus

HIDDEN = "***"

_DEEPEST = 8
"""Nesting beyond this is shown as text, which also ends a structure that contains itself."""

_SECRET_WORDS = frozenset(
    {
        "authorization",
        "cookie",
        "cookies",
        "credential",
        "credentials",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "pat",
        "pwd",
        "secret",
        "secrets",
        "token",
        "tokens",
    }
)
_SECRET_KEY_WORDS = frozenset(
    {"access", "api", "encryption", "hmac", "master", "private", "secret", "session", "signing", "ssh"}
)
_HARMLESS_ENDINGS = frozenset(
    {
        "age",
        "at",
        "blocked",
        "count",
        "expiry",
        "fingerprint",
        "hash",
        "id",
        "ids",
        "kind",
        "length",
        "limit",
        "ms",
        "name",
        "owner",
        "remaining",
        "seconds",
        "state",
        "total",
        "type",
    }
)
_SECRET_PARAMETERS = frozenset({"auth", "hmac", "jwt", "key", "session", "sid", "sig", "signature"})
"""Last words of the names of query parameters that are secret in URLs: API keys and signatures of signed URLs."""
_PARAMETER = re.compile(r"([?&;])([^=&;#\s]+)=([^&;#\s]+)")
_SHORTEST_SECRET = 6
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_SENSITIVE_WORDS = r"password|passwd|passphrase|secret|token|credential|api_?key|private_?key|access_?key"
_SECRET_NAME = rf"\b\w*(?:{_SENSITIVE_WORDS})s?"
_SCHEME = r"[a-z][a-z0-9+.-]{0,20}"

_SHAPES: list[tuple[str, str]] = [
    # A private key, also one that was cut off.
    (r"(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))", HIDDEN),
    # scheme://user:password@host, up to the last @, since a careless password contains : @ and / itself. A web address
    # often has a port and an @ in its path; there, digits before a slash are the port.
    (rf"(\b(?!https?:){_SCHEME}:/{{1,2}}[^\s/:@\"']*:)[^\s\"'<>]{{0,2048}}@", rf"\1{HIDDEN}@"),
    (r"(\bhttps?://[^\s/:@\"']*:)(?!\d{1,5}[/?#])[^\s\"'<>]{0,2048}@", rf"\1{HIDDEN}@"),
    # GitHub's tokens, also behind a percent-encoded character.
    (
        r"(?:(?<![a-z0-9])|(?<=%[0-9a-f]{2}))(gh[pousr]_|github_pat_)[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_-])?",
        rf"\1{HIDDEN}",
    ),
    # A JSON Web Token.
    (r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*", HIDDEN),
    # A header inside a text: Authorization: Basic dXNlcjp4, or 'Authorization': 'token abc'.
    (
        r"(\bauthorization[\"']?\s*[:=,]\s*(?:b?[\"'])?)(?:(?:basic|bearer|digest|token)\s+)?[^\s\"',;)}\]]+",
        rf"\1{HIDDEN}",
    ),
    (r"(\bbearer\s+)[\w.~+/=-]{12,}", rf"\1{HIDDEN}"),
    # password='x', "token": "x"; where the closing quote was cut off, the rest of the line.
    (rf"({_SECRET_NAME}[\"']?\s*[:=]\s*b?)([\"'])(?:\\.|(?!\2).)*(?:\2|$)", rf"\1\2{HIDDEN}\2"),
    # password=x, ?access_token=x&next=y. Not "token: x", which is how parsers speak of words.
    (rf"({_SECRET_NAME}=)(?![\"'*])[^\s&,;)}}\]\"']+", rf"\1{HIDDEN}"),
]
_COMPILED = [(re.compile(shape, re.IGNORECASE | re.MULTILINE), instead) for shape, instead in _SHAPES]
# Every shape contains one of these. Most texts contain none, so the search for all shapes is skipped.
_MAY_HOLD_SECRET = re.compile(
    rf"@|gh[pousr]_|github_pat_|eyJ|authorization|bearer|private key|{_SENSITIVE_WORDS}", re.IGNORECASE
)


def redact(value: object, *, name: str = "") -> Any:
    """Return the value without secrets, in plain types that can be written as JSON.

    `name` is the name of the field or variable; if it is the name of a secret, the whole value is hidden.
    """
    return _redact(value, name, _DEEPEST)


def redact_text(text: str) -> str:
    """Return the text with `***` in place of every secret that is recognised by its shape."""
    if not _MAY_HOLD_SECRET.search(text):
        return text
    for shape, instead in _COMPILED:
        text = shape.sub(instead, text)
    return text


def redact_url(url: str) -> str:
    """Return the URL with `***` in place of secrets, also of query parameters with the name of a secret.

    `key=`, `sig=` and `X-Amz-Signature=` are secrets in a URL, but not in other texts.
    """
    return redact_text(_PARAMETER.sub(_redact_parameter, url) if "?" in url else url)


def redact_known(text: str, secret: str) -> str:
    """Return the text with `***` in place of this secret, as it is or percent-encoded.

    A text of less than 6 characters is no secret: it occurs in other words.
    """
    if len(secret) < _SHORTEST_SECRET:
        return text
    for form in (secret, quote(secret, safe=""), quote_plus(secret), quote(secret)):
        text = text.replace(form, HIDDEN)
    return text


def fit_to_keep(text: str, *, most: int) -> str:
    """Return the first `most` characters of a text, without secrets and without characters that databases refuse.

    Control characters other than tabs and ends of lines are written as escapes: upstreams choose parts of such texts,
    and a terminal that shows them would execute them.
    """
    text = redact_text(text.replace("\0", ""))  # first: the letters of an escape would hide it
    # Half of a surrogate pair cannot be stored as UTF-8, so it becomes an escape too.
    return _CONTROL.sub(_escaped, text.encode(errors="backslashreplace").decode())[:most]


def is_secret_name(name: str) -> bool:
    """Whether a field of this name is secret.

    It is if it has a word like `password` or `token`, or a pair like `api_key`, unless its last word shows that it is
    only about a secret: `access_token` and `tokens` are secret, `token_id` and `tokens_blocked` are not.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _HARMLESS_ENDINGS:
        return False
    if _SECRET_WORDS.intersection(words) or {"key", "material"} <= set(words):
        return True
    return any(word in ("key", "keys") and before in _SECRET_KEY_WORDS for before, word in pairwise(words))


def _escaped(character: re.Match[str]) -> str:
    return f"\\x{ord(character[0]):02x}"


def _redact_parameter(parameter: re.Match[str]) -> str:
    before, name, _ = parameter.groups()
    return f"{before}{name}={HIDDEN}" if _is_secret_parameter(name) else parameter[0]


@lru_cache(maxsize=1024)
def _is_secret_parameter(name: str) -> bool:
    name = unquote_plus(name)
    words = _WORDS.findall(name)
    return is_secret_name(name) or bool(words and words[-1].lower() in _SECRET_PARAMETERS)


def _redact(value: object, name: str, depth: int) -> Any:
    if depth > 0 and isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value).items()
        # The names of outer fields are kept, so that values below `credentials` are hidden too.
        return {_text(key): _redact(inner, f"{name}.{_text(key)}", depth - 1) for key, inner in entries}
    if depth > 0 and isinstance(value, list | tuple | set | frozenset):
        return [_redact(inner, name, depth - 1) for inner in cast("Iterable[object]", value)]
    if value is None or isinstance(value, bool | int | float):
        return _redact_number(value, name)
    return HIDDEN if is_secret_name(name) else _text(value)


def _redact_number(value: float | None, name: str) -> Any:
    """Numbers called tokens are counts; numbers called anything else that is secret are secrets."""
    if value is not None and "token" not in name.lower() and is_secret_name(name):
        return HIDDEN
    return value if value is None or math.isfinite(value) else str(value)


def _text(value: object) -> str:
    """Convert any object to text. Never raises, so that no log line is lost."""
    if isinstance(value, bytes | bytearray):
        return redact_text(value.decode(errors="backslashreplace"))
    try:
        return redact_text(str(value))
    except Exception:
        return f"<unprintable {type(value).__name__}>"
