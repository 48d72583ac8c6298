"""Parses and checks addresses of Valkey servers, and removes their passwords before they are shown."""

from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from tidegate.core.errors import InvalidArgument

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_OPTIONS = frozenset({"db"})
_TLS_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})


def without_password(url: str) -> str:
    """The address as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def require_url(url: str) -> SplitResult:
    """Parse a supported address. Raises `InvalidArgument` for any other.

    An address that cannot be parsed is not shown, because it may contain a password anywhere.
    """
    scheme = url.partition(":")[0]
    if scheme not in SCHEMES:
        raise InvalidArgument("url", f"{scheme[:16]}…", f"must start with one of {', '.join(SCHEMES)}")
    parts = _take_apart(url)
    if parts is None:
        reason = "cannot be read (special characters in a password must be percent-encoded)"
        raise InvalidArgument("url", f"{scheme}://…", reason)
    if reason := _complaint(parts):
        raise InvalidArgument("url", without_password(urlunsplit(parts._replace(query=""))), reason)
    return parts


def _take_apart(url: str) -> SplitResult | None:
    """None where a stray character makes one part run into the next."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return None if "#" in url or "@" in parts.path + parts.query else parts


def _complaint(parts: SplitResult) -> str | None:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = _OPTIONS | _TLS_OPTIONS if parts.scheme.startswith("rediss") else _OPTIONS
    if unknown := sorted(set(options) - known):
        return f"{', '.join(unknown)} is no option of it"
    if parts.scheme == "unix":
        return None if parts.path.strip("/") else "names no socket"
    if not parts.hostname:
        return "names no host"
    number = options.get("db", parts.path.strip("/") or "0")
    if not number.isdecimal():
        return "the number of its database is no number"
    if parts.scheme.endswith("+cluster") and int(number) != 0:
        return "a cluster has no numbered databases"
    return None
