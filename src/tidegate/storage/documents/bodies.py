"""Bodies in MongoDB: as searchable documents, or as JSON text if BSON cannot represent them."""

from collections.abc import Mapping
from typing import Any, cast

import bson
import msgspec

_LARGEST = 12 * 1024 * 1024
"""In bytes of BSON; the limit of MongoDB is 16 MiB for the whole document."""
_MAY_GROW = 1024 * 1024
"""JSON with fewer characters cannot exceed `_LARGEST` in BSON."""
_DEEPEST = 80
_LARGEST_INTEGER = 2**63 - 1


def to_bson(text: str) -> dict[str, Any]:
    """The field for a body, `body` or `body_json`; the other one is None."""
    try:
        body = msgspec.json.decode(text)
    except (ValueError, RecursionError):  # raw bytes of the upstream, decoded here for the first time
        return {"body": None, "body_json": text}
    fits = _fits(body, _DEEPEST) and (len(text) < _MAY_GROW or len(bson.encode(body)) <= _LARGEST)
    return {"body": body, "body_json": None} if fits else {"body": None, "body_json": text}


def from_bson(found: Mapping[str, Any]) -> str:
    """The body as JSON."""
    if found["body_json"] is not None:
        return found["body_json"]
    return msgspec.json.encode(found["body"], enc_hook=int).decode()  # of 64 bits, BSON has integers of its own


def _fits(value: object, depth: int) -> bool:
    """Whether BSON can represent a value: no keys that look like operators or paths, no too large numbers or depths."""
    if isinstance(value, int):
        return -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER
    if depth == 0:
        return not isinstance(value, dict | list)
    if isinstance(value, list):
        return all(_fits(each, depth - 1) for each in cast("list[object]", value))
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value).items()
        return all(_plain(key) and _fits(each, depth - 1) for key, each in entries)
    return True


def _plain(key: str) -> bool:
    return bool(key) and key[0] != "$" and "." not in key and "\0" not in key
