"""The page of the command line: every command with its arguments, options and help."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

import typer.main

import tidegate.app.cli
from reference.markdown import MADE, anchor, code, page, prose, table

_HEAD = f"""# Commands

{MADE}

Every command has `--help`, which says the same. An argument in brackets may be left out; dots mean that several may
be given. What goes wrong is told in one line on standard error; what was asked for goes to standard output, so that
`--json` can be piped on.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | something is wrong, failed or was canceled, and was told |
| 2 | the command line itself cannot be read |
| 130 | interrupted |

Where a command has a code of its own beside these, it says so.

`python -m tidegate` is the same as `tidegate`.

## Shell completion

`tidegate --install-completion` installs completion of commands and options for the shell in which it is run: bash, zsh
or fish. It takes effect in the next terminal. `tidegate --show-completion` prints the script instead. Where the shell
cannot be found out, as in the build of an image, name it: `_TIDEGATE_COMPLETE=source_bash tidegate` (`source_zsh`,
`source_fish`) prints the script of that shell.
"""
_TYPES: dict[object, str] = {bool: "", int: "whole number", float: "number", str: "text"}


def describe_commands() -> str:
    """The page, as Markdown."""
    found = list(_walk("tidegate", typer.main.get_command(tidegate.app.cli.app)))
    lines = [_HEAD, "## All of them", ""]
    lines += [f"- [`{name}`](#{anchor(name)}): {_first_line(command)}" for name, command in found]
    for name, command in found:
        lines += ["", f"## {name}", "", *_described(name, command)]
    return page(lines)


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name; groups are only the way to them."""
    whole = command.load() if hasattr(command, "load") else command
    if hasattr(whole, "list_commands"):
        whole.list_commands(typer.Context(whole))  # with those of the systems
    inner: dict[str, Any] = getattr(whole, "commands", {})
    if not inner:
        yield name, whole
    for part, each in sorted(inner.items()):
        if not each.hidden:
            yield from _walk(f"{name} {part}", each)


def _first_line(command: Any) -> str:
    return prose((command.help or "").partition("\n")[0])


def _described(name: str, command: Any) -> list[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_written, arguments)])
    lines = ["```text", usage, "```", "", *_paragraphs(command.help or "")]
    lines += table(["argument", "meaning"], ([code(_written(each)), _meaning(each)] for each in arguments))
    lines += table(
        ["option", "value", "default", "meaning"],
        ([_names(each), _value(each), _default(each), _meaning(each)] for each in options),
    )
    return lines


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from (prose(paragraph), "")


def _written(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper().replace("_", "-")).strip("[].")
    several = "..." if argument.nargs == -1 else ""
    return f"{name}{several}" if argument.required else f"[{name}{several}]"


def _names(option: Any) -> str:
    return ", ".join(map(code, [*option.opts, *option.secondary_opts]))


def _value(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    one = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    words = _choices(one) or _TYPES.get(one, "path" if getattr(one, "__name__", "") == "Path" else "text")
    low, high = getattr(option, "min", None), getattr(option, "max", None)
    bounds = [f"from {low:g}"] if low is not None else []
    bounds += [f"to {high:g}"] if high is not None else []
    needed = ["needed"] if option.required else []
    several = ["several times"] if option.multiple else []
    return ", ".join(filter(None, [" ".join([words, *bounds]).strip(), *several, *needed]))


def _choices(one: Any) -> str:
    members: Sequence[Any] = [*getattr(one, "__members__", {}).values()] or get_args(one)
    return " or ".join(code(getattr(each, "value", each)) for each in members)


def _default(option: Any) -> str:
    default = getattr(option.default, "value", option.default)
    return "" if default in (None, False, "", []) or callable(default) else code(default)


def _meaning(parameter: Any) -> str:
    return prose(parameter.help or "")
