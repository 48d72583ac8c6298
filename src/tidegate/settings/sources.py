"""Reads settings from the environment and the file, and reports errors with the user's names."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from tidegate.core.errors import InvalidSettings
from tidegate.core.telemetry.redaction import is_secret_name, redact, redact_text

PREFIX = "TIDEGATE_"
_NOT_OURS = "TIDEGATE_TEST_"
_CONFIG = "TIDEGATE_CONFIG"
_FILE_NAME = "tidegate.toml"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
SPAN_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

M = TypeVar("M", bound=BaseSettings)

SettingPath = tuple[str, ...]
"""The path of a setting: `("breaker", "window")`."""


def settings_of(model: type[BaseModel], path: SettingPath = ()) -> Iterator[tuple[SettingPath, FieldInfo]]:
    """All settings of a model and of its groups."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings_of(field.annotation, (*path, name))
        else:
            yield (*path, name), field


Compose = Callable[[Iterable[str] | None], type[M]]


def variable_of(path: SettingPath) -> str:
    """The environment variable of a setting."""
    return PREFIX + "__".join(path).upper()


def _path_of(variable: str) -> SettingPath:
    return tuple(variable.removeprefix(PREFIX).lower().split("__"))


@dataclass(frozen=True)
class Sources(Generic[M]):
    """The values of the environment and of the file, for a model of settings."""

    model: type[M]
    known: Mapping[SettingPath, FieldInfo]
    variables: Mapping[str, str]
    written: Mapping[str, Any]
    file: Path | None

    @classmethod
    def read(cls, compose: Compose[M], *, default_data_dir: Path) -> Self:
        """Read the environment and the file. Raises `InvalidSettings` if the file cannot be read.

        `compose` makes a model with the given sections; if a name is unknown, with all sections.
        """
        variables = {name.upper(): value for name, value in os.environ.items() if _is_ours(name.upper())}
        file = _find_file(Path(variables.get(variable_of(("data_dir",))) or default_data_dir))
        written = _read_toml(file) if file else {}
        # Only the sections that are given are imported, which keeps short commands fast.
        mentioned = {_path_of(variable)[0] for variable in variables} | written.keys()
        model = compose(mentioned)
        known = dict(settings_of(model))
        read = cls(model, known, variables, written, file)
        # An unknown name ends the start anyway. All sections are loaded, so that the message
        # can suggest a similar name.
        if any(True for _ in read.unknown_names()):
            read = replace(read, known=dict(settings_of(compose(None))))
        return read

    def values(self) -> dict[str, Any]:
        """The given values of known settings, nested like the model; the environment takes precedence."""
        values: dict[str, Any] = {}
        for path, field in self.known.items():
            value = self._from_environment(path)
            if value is None:
                value = _at(self.written, path)
            if value is not None:
                _put(values, path, _with_spans(value, field.annotation))
        return values

    def unknown_names(self) -> Iterator[str]:
        """A message for each unknown name."""
        ours = {variable_of(path) for path in self.known}
        for variable in self.variables.keys() - ours:
            meant = self._meant_by(_path_of(variable))
            yield f"{variable}: unknown setting" + (f"; did you mean {variable_of(meant)}?" if meant else "")
        yield from self._strange_entries(self.written, ())

    def explain(self, details: ErrorDetails) -> str:
        """A message for one error: the name as written, the value unless it is secret, and the reason."""
        location = tuple(str(part) for part in details["loc"])
        path = next((path for path in self.known if location[: len(path)] == path), location)
        # Messages of validators may contain the value.
        reason = redact_text(details["msg"].removeprefix("Value error, ").replace("Input should be", "must be"))
        if details["type"].startswith("time_delta"):
            reason = "must be a duration, such as 250ms, 30s, 5m, 2h or 1d"
        name = " ".join([self._name_of(path), *location[len(path) :]])
        if details["type"] == "extra_forbidden":
            return f"{name}: unknown setting"
        if path not in self.known or not self.known[path].repr or is_secret_name(location[-1]):
            return f"{name}: {reason}"
        return f"{name} is {redact(details['input'])!r}: {reason}"

    def _from_environment(self, path: SettingPath) -> Any:
        """The value of one setting in the environment; read separately, so that an error has its name."""
        variable = variable_of(path)
        if not self.variables.get(variable):
            return None
        source = EnvSettingsSource(self.model)
        source.env_vars = {variable.lower(): self.variables[variable]}
        try:
            return _at(source(), path)
        except SettingsError:  # its cause contains the value
            raise InvalidSettings(f"{variable}: must be JSON, as it is a list") from None

    def _name_of(self, path: SettingPath) -> str:
        """The name as the user wrote it; for an inconsistent group, the names of all its given settings."""
        inside = [each for each in self.known if each[: len(path)] == path]
        names = [
            variable_of(each) if self.variables.get(variable_of(each)) else f"{'.'.join(each)} in {self.file}"
            for each in inside
            if self.variables.get(variable_of(each)) or _at(self.written, each) is not None
        ]
        return ", ".join(names) or ".".join(path)

    def _strange_entries(self, written: Mapping[str, Any], path: SettingPath) -> Iterator[str]:
        groups = {each[:depth] for each in self.known for depth in range(1, len(each))}
        for name, value in written.items():
            here = (*path, name)
            entry = f"{'.'.join(here)} in {self.file}"
            if here in groups and isinstance(value, dict):
                yield from self._strange_entries(cast("dict[str, Any]", value), here)
            elif here in groups:
                yield f"{entry}: is a group of settings, not a setting"
            elif here not in self.known:
                meant = self._meant_by(here)
                yield f"{entry}: unknown setting" + (f"; did you mean {'.'.join(meant)}?" if meant else "")

    def _meant_by(self, path: SettingPath) -> SettingPath | None:
        """The setting with the most similar name, or one with the same last part in another group."""
        by_name = {" ".join(each): each for each in self.known}
        close = get_close_matches(" ".join(path), by_name, n=1, cutoff=0.7)
        return by_name[close[0]] if close else next((each for each in self.known if each[-1] == path[-1]), None)


def _is_ours(variable: str) -> bool:
    return variable.startswith(PREFIX) and not variable.startswith(_NOT_OURS) and variable != _CONFIG


def _find_file(data_dir: Path) -> Path | None:
    if named := os.environ.get(_CONFIG):
        return Path(named).expanduser()
    candidates = [Path.cwd() / _FILE_NAME, data_dir.expanduser() / _FILE_NAME]
    return next((each for each in candidates if _is_file(each)), None)


def _is_file(path: Path) -> bool:
    """Whether the file exists; False if its folder is not accessible, which is reported when the folder is used."""
    try:
        return path.is_file()
    except OSError:
        return False


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise InvalidSettings(f"{file} is not a TOML file: {redact_text(str(error))}") from None


def _at(values: object, path: SettingPath) -> Any:
    for name in path:
        if not isinstance(values, Mapping):
            return None
        values = cast("Mapping[str, object]", values).get(name)
    return values


def _put(values: dict[str, Any], path: SettingPath, value: object) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _with_spans(value: object, annotation: object) -> object:
    """The value with durations such as `30s` converted, because pydantic accepts ISO 8601 only."""
    if isinstance(value, list):
        element = next(iter(get_args(annotation)), None)
        return [_with_spans(each, element) for each in cast("list[object]", value)]
    if isinstance(value, dict) and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        entries = cast("dict[str, object]", value).items()
        return {name: _with_spans(each, fields[name].annotation if name in fields else None) for name, each in entries}
    if isinstance(value, str) and timedelta in (annotation, *get_args(annotation)):
        match = _SPAN.fullmatch(value.strip())
        return timedelta(seconds=float(match[1]) * SPAN_UNITS[match[2] or "s"]) if match else value
    return value
