"""JSON schemas as tables: the structures of requests and answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reference.markdown import anchor, code, prose, table

_RANGES = {
    "string": ("minLength", "maxLength", "{} characters"),
    "array": ("minItems", "maxItems", "{} of them"),
    "integer": ("minimum", "maximum", "{}"),
    "number": ("minimum", "maximum", "{}"),
}
_LARGEST = 2**63 - 1
"""The range of ids in a database: not shown as a bound."""
_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def describe_schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    """A section for each, in the order of their names."""
    for name, schema in sorted(schemas.items()):
        yield from (f"### {_title(name)}", "", prose(schema.get("description", "")), "")
        if "enum" in schema:
            yield from (f"One of {', '.join(map(code, schema['enum']))}.", "")
        needed = schema.get("required", [])
        yield from table(
            ["field", "type", "meaning"],
            (
                [code(field), _field(field, each, needed), prose(each.get("description", ""))]
                for field, each in schema.get("properties", {}).items()
            ),
        )


def in_words(schema: Mapping[str, Any]) -> str:
    """The type, as people say it, with its bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{_title(name)}](#{anchor(_title(name))})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return _one_of(options)
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return " or ".join(map(code, schema["enum"]))
    return ", ".join(filter(None, [_kind(schema), _range(schema)]))


def _one_of(options: Sequence[Mapping[str, Any]]) -> str:
    """One after the other; texts of several patterns are a text."""
    told = list(dict.fromkeys(map(in_words, options)))
    kinds = list(dict.fromkeys(map(_kind, options)))
    plain = len(told) > 2 and set(kinds) <= {"text", "null"}
    return " or ".join(kinds if plain else told)


def _range(schema: Mapping[str, Any]) -> str:
    low_name, high_name, words = _RANGES.get(_type(schema), ("", "", ""))
    low = schema.get(low_name)
    high = schema.get(high_name) if schema.get(high_name, 0) < _LARGEST else None
    if low is None and "exclusiveMinimum" in schema:
        return " ".join([f"more than {schema['exclusiveMinimum']:g}", *([] if high is None else [f"to {high}"])])
    if low is None and high is None:
        return ""
    if high is None:
        return words.format(f"from {low}")
    return words.format(f"at most {high}" if low is None else f"{low} to {high}")


def _type(schema: Mapping[str, Any]) -> str:
    is_text = not schema.keys().isdisjoint({"pattern", "minLength", "maxLength", "format"})
    return schema.get("type") or ("string" if is_text else "")


def _kind(schema: Mapping[str, Any]) -> str:
    match _type(schema):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(map(in_words, schema['prefixItems']))}]"
        case "array":
            items = in_words(schema.get("items", {}))
            return f"list of ({items})" if ", " in items else f"list of {items}"
        case "object":
            values = schema.get("additionalProperties")
            return f"object of {in_words(values)}" if isinstance(values, Mapping) and values else "object"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case "":
            return "anything"
        case name:
            return _TYPES.get(name, name)


def _field(name: str, schema: Mapping[str, Any], needed: list[str]) -> str:
    if name in needed or "default" not in schema:
        return in_words(schema)
    default = schema["default"]
    is_nothing = default is None or default in ([], {}, "")
    return in_words(schema) if is_nothing else f"{in_words(schema)}; {code(json.dumps(default))} unless given"


def _title(name: str) -> str:
    """Two structures of one name are distinguished by their modules, which are not shown."""
    *module, last = name.split(".")
    return f"{last} ({module[-2]})" if module else last
