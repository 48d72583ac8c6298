"""The header `Link`: where the next page is."""

import re
from urllib.parse import urlsplit

from tidegate.engine.upstream.messages import Headers

_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[a-zA-Z*]+\s*=\s*(?:"[^"]*"|[^",;\s]+))*)')
_RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^",;\s]+))', re.IGNORECASE)


class ForeignLink(ValueError):
    """A link that leads away from the API: our credentials do not follow it."""


def links(headers: Headers) -> dict[str, str]:
    """Every link by its relation; of several with one relation the first."""
    found: dict[str, str] = {}
    for target, parameters in _LINK.findall(", ".join(headers.getall("Link", []))):
        relation = _RELATION.search(parameters)
        for name in (relation[1] or relation[2] or "").split() if relation else ():
            found.setdefault(name.lower(), target)
    return found


def next_path(headers: Headers, api_url: str) -> str | None:
    """The next page, as path and query below the API's address; None if this page is the last."""
    target = links(headers).get("next")
    return None if target is None else below(target, api_url)


def below(url: str, api_url: str) -> str:
    """`url` without the address of the API; raises `ForeignLink` where it is not part of it."""
    api, link = urlsplit(api_url), urlsplit(url)
    prefix = api.path.rstrip("/")
    if (link.scheme, link.netloc.lower()) != (api.scheme, api.netloc.lower()) or not link.path.startswith(f"{prefix}/"):
        raise ForeignLink(f"the next page is said to be at {link.netloc or 'no host'}, which is not the API")
    path = link.path.removeprefix(prefix)
    return f"{path}?{link.query}" if link.query else path
