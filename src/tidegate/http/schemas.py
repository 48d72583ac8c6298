"""JSON schemas of structs; the docstring under a field becomes its description."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, get_args

import msgspec

from tidegate.core.docstrings import field_docstrings

REFERENCE = "#/components/schemas/{name}"


def schemas_of(types: Sequence[Any]) -> tuple[Mapping[Any, Any], dict[str, Any]]:
    """The schema of each type, and the referenced components by name."""
    described, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    for struct in _structs_in(types):
        component, meanings = components.get(struct.__name__, {}), meanings_of(struct)
        properties: dict[str, Any] = component.get("properties", {})
        for field in msgspec.structs.fields(struct):
            if datetime in (field.type, *get_args(field.type)):
                _note_moment(properties.get(field.encode_name, {}))
            if field.name in meanings and field.encode_name in properties:
                properties[field.encode_name] = {"description": meanings[field.name], **properties[field.encode_name]}
        component |= getattr(struct, "NARROWER", {})
    return dict(zip(types, described, strict=True)), components


def parameter_schema(annotation: Any) -> dict[str, Any]:
    """The schema of a path or query parameter: without references, and never null, since it can be omitted."""
    schema = msgspec.json.schema(annotation)
    whole = _inlined(schema, schema.get("$defs", {}))
    options = [each for each in whole.get("anyOf", []) if each != {"type": "null"}]
    return options[0] if len(options) == 1 else whole


def meanings_of(struct: type[Any]) -> dict[str, str]:
    """The docstrings under the fields of a struct and of its base classes, in the words of JSON."""
    return {name: re.sub(r"\bNone\b", "null", text) for name, text in field_docstrings(struct).items()}


def _note_moment(schema: dict[str, Any]) -> None:
    """Add the format `date-time`, which msgspec omits for times without constraints."""
    for each in (schema, *schema.get("anyOf", [])):
        if each.get("type") == "string":
            each["format"] = "date-time"


def _structs_in(types: Sequence[Any]) -> list[type[Any]]:
    """All structs that occur in these types."""
    found: dict[type[Any], None] = {}
    frontier = list(types)
    while frontier:
        kind = frontier.pop()
        frontier += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            found[kind] = None
            frontier += [field.type for field in msgspec.structs.fields(kind)]
    return list(found)


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with references replaced by their definitions."""
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items() if name != "$defs"}
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    return schema
