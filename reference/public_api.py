"""The page of the public API: every name of `import tidegate` with its docstring, and the other public modules."""

import inspect
import textwrap
from collections.abc import Iterator
from importlib import import_module

import tidegate
from reference.markdown import MADE, anchor, code, page

_HEAD = f"""# Python API

{MADE}

`import tidegate` gives these names. With [the other public modules](#other-public-modules) they are the
public API; everything else is
private and may change without notice. Modules are imported when one of their names is first used.
"""

PUBLIC_MODULES = (
    "tidegate.system",
    "tidegate.process",
    "tidegate.engine",
    "tidegate.http",
    "tidegate.cli",
    "tidegate.core.telemetry.metrics",
    "tidegate.storage.sql",
    *(f"tidegate.primitives.{name}" for name in ("coalescer", "gate", "limiter", "stream", "timers", "wakeup")),
    *(f"tidegate.systems.{name}" for name in ("campaigns", "crawl", "github", "ranking", "snapshots", "waiting_room")),
)
"""Modules whose `__all__` is public too: what the owner of a source, a system or an application needs beyond the names
of `tidegate`."""


def describe_api() -> str:
    """The page, as Markdown."""
    names = tidegate.__all__
    lines = [_HEAD]
    lines += [f"- [{code(name)}](#{anchor(name)}): {_first_line(name)}" for name in names]
    for name in names:
        lines += ["", f"## {name}", "", *_described(name)]
    lines += ["", "## Other public modules", ""]
    lines += ["Names that `tidegate` has too are left out.", "", "| module | public names |", "| --- | --- |"]
    for module in PUBLIC_MODULES:
        others = [code(name) for name in import_module(module).__all__ if name not in names]
        lines.append(f"| {code(module)} | {', '.join(others)} |")
    return page(lines)


def _first_line(name: str) -> str:
    return (inspect.getdoc(getattr(tidegate, name)) or "").partition("\n")[0].replace("<", "&lt;")


def _described(name: str) -> Iterator[str]:
    found = getattr(tidegate, name)
    yield from ("", _fenced(inspect.getdoc(found) or ""), "")
    if inspect.isclass(found):
        for method, function in _public_methods(found):
            said = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
            if said and not said.startswith("See `"):
                yield f"- `{method}{_signature(function)}`: {said}"


def _public_methods(kind: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def _signature(function: object) -> str:
    """Names and defaults without types, which the docstring and the source have."""
    assert callable(function)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(function).parameters.values()
        if each.name not in ("self", "cls")
    ]
    return str(inspect.Signature([_plain(each) for each in parameters]))


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Without a default that has no short text of its own, which could differ from run to run."""
    is_shown = parameter.default is inspect.Parameter.empty or isinstance(parameter.default, str | int | float | None)
    return parameter if is_shown else parameter.replace(default=...)


def _fenced(docstring: str) -> str:
    """The docstring with its example as a block of code."""
    before, label, rest = docstring.partition("Example:\n")
    if not label:
        return docstring
    lines = rest.split("\n")
    end = next((n for n, line in enumerate(lines) if line and not line.startswith("    ")), len(lines))
    code = textwrap.dedent("\n".join(lines[:end])).strip()
    return f"{before}```py\n{code}\n```\n\n{chr(10).join(lines[end:])}".rstrip()
