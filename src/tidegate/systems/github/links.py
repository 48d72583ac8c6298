"""Parses the header `Link`, which has the address of the next page."""

import re
from urllib.parse import urlsplit

from tidegate.engine.upstream.messages import Headers

_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[a-zA-Z*]+\s*=\s*(?:"[^"]*"|[^",;\s]+))*)')
_RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^",;\s]+))', re.IGNORECASE)


class ForeignLink(ValueError):
    """A link to another host than the API; it is not followed, because requests carry credentials."""


def links(headers: Headers) -> dict[str, str]:
    """All links by relation; of several with the same relation, the first."""
    found: dict[str, str] = {}
    for target, parameters in _LINK.findall(", ".join(headers.getall("Link", []))):
        relation = _RELATION.search(parameters)
        for name in (relation[1] or relation[2] or "").split() if relation else ():
            found.setdefault(name.lower(), target)
    return found


def next_path(headers: Headers, api_url: str) -> str | None:
    """Path and query of the next page, relative to the API's address; None on the last page."""
    target = links(headers).get("next")
    return None if target is None else below(target, api_url)


def below(url: str, api_url: str) -> str:
    """`url` relative to the API's address; raises `ForeignLink` if it is at another address."""
    api, link = urlsplit(api_url), urlsplit(url)
    prefix = api.path.rstrip("/")
    # Scheme and port as well: a link to another port or without TLS would expose the credential.
    if (link.scheme, link.netloc.lower()) != (api.scheme, api.netloc.lower()) or not link.path.startswith(f"{prefix}/"):
        raise ForeignLink(f"the link to the next page leads to {link.netloc or 'no host'}, which is not the API")
    path = link.path.removeprefix(prefix)
    return f"{path}?{link.query}" if link.query else path
