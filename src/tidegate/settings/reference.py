"""Generates the reference page of all settings: `python -m tidegate.settings.reference`."""

import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import cast, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tidegate.core.docstrings import field_docstrings
from tidegate.core.telemetry.redaction import redact_text
from tidegate.settings.model import Settings, compose
from tidegate.settings.sources import SPAN_UNITS, SettingPath, settings_of, variable_of

_HEAD = """# Settings

Made from the code by `python -m tidegate.settings.reference`; a test keeps it current.

The environment wins over the TOML file, which is the first of: the file named by `TIDEGATE_CONFIG`, `tidegate.toml` in
the working folder, `tidegate.toml` in the data folder. In the file, `breaker.window` is `window` under `[breaker]`.
Durations are written `250ms`, `30s`, `5m`, `2h`, `1d`; lists in the environment as JSON. Unknown names are refused at
the start.
"""
_TYPES: dict[object, str] = {
    bool: "true or false",
    float: "number",
    int: "whole number",
    Path: "path",
    SecretStr: "secret text",
    str: "text",
    timedelta: "duration",
}
_BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}


def describe_settings() -> str:
    """Return the reference page in Markdown."""
    lines = [_HEAD, "| setting | variable | type | default | meaning |", "| --- " * 5 + "|"]
    whole = compose()
    for path, field in settings_of(whole):
        meaning = field_docstrings(_owner_of(whole, path)).get(path[-1], "")
        columns = (f"`{'.'.join(path)}`", f"`{variable_of(path)}`", _type_of(field), _default_of(field), meaning)
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def _owner_of(model: type[BaseModel], path: SettingPath) -> type[BaseModel]:
    """The class that declares the setting at this path."""
    for name in path[:-1]:
        model = cast("type[BaseModel]", model.model_fields[name].annotation)
    return model


def effective_settings(settings: Settings) -> dict[str, str | None]:
    """All settings with their effective values in the notation of the file; secrets are hidden."""
    effective = dict[str, str | None]()
    whole = compose()
    given = whole(**dict(settings))
    for path, _ in settings_of(whole):
        value: object = given
        for name in path:
            value = getattr(value, name)
        effective[".".join(path)] = None if value is None else redact_text(_as_written(value))
    return effective


def _type_of(field: FieldInfo) -> str:
    """The type in words, with its bounds."""
    bounds = [
        f"{word} {_as_written(getattr(rule, name))}"
        for rule in field.metadata
        for name, word in _BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([_in_words(field.annotation), *bounds])


def _in_words(annotation: object) -> str:
    """A type annotation as words, such as "list of text"."""
    arguments = [each for each in get_args(annotation) if each not in (type(None), Ellipsis)]
    if get_origin(annotation) in (list, tuple, set, frozenset):
        return f"list of {_in_words(arguments[0])}"
    if arguments:
        return " or ".join(map(_in_words, arguments))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"{annotation.__name__.lower()} ({', '.join(annotation.model_fields)})"
    return _TYPES.get(annotation, f"`{annotation}`")


def _default_of(field: FieldInfo) -> str:
    default: object = field.get_default(call_default_factory=True, validated_data={})
    return "" if default is None or isinstance(default, Path) else f"`{_as_written(default)}`"


def _as_written(value: object) -> str:
    if isinstance(value, timedelta):
        return _span_as_written(value)
    if isinstance(value, list | tuple | frozenset):
        return f"[{', '.join(map(_as_written, cast('Iterable[object]', value)))}]"
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        given = {name: getattr(value, name) for name, field in fields if getattr(value, name) != field.default}
        return f"{{{', '.join(f'{name} = {_as_written(each)}' for name, each in given.items())}}}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _span_as_written(span: timedelta) -> str:
    """A duration in the largest unit that gives a whole number."""
    sizes = [(timedelta(seconds=seconds), unit) for unit, seconds in SPAN_UNITS.items()]
    whole = [f"{span // size}{unit}" for size, unit in sizes if span % size == timedelta(0)]
    return whole[-1] if span and whole else f"{span.total_seconds():g}s"


if __name__ == "__main__":
    sys.stdout.write(describe_settings())
