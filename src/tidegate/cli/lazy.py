"""Commands that are imported when they are run, and not before: `--help` and `--version` need none of them."""

from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidegate.core.plugins import load_place
from tidegate.system import Command

PLAIN = None
"""The mode of help pages and of errors in the command line: without the library for markup, whose import takes longer
than everything else that they need."""


class _Unloaded(TyperCommand):
    """Stands in the list of commands until it is called by its name."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name, help=command.summary, short_help=command.summary, rich_markup_mode=PLAIN)
        self._place = command.place

    def load(self) -> Any:
        """The command itself."""
        found = load_place(self._place)
        if isinstance(found, typer.Typer):
            found.rich_markup_mode = PLAIN
            return _with_summaries(typer.main.get_group(found))
        alone = typer.Typer(add_completion=False, rich_markup_mode=PLAIN)
        alone.command(self.name)(found)
        return typer.main.get_command(alone)


def _with_summaries(group: TyperGroup) -> TyperGroup:
    """Have the list of commands show the first line of each whole, on several lines where need be."""
    for command in group.commands.values():
        command.short_help = command.short_help or (command.help or "").partition("\n")[0]
        if isinstance(command, TyperGroup):
            _with_summaries(command)
    return group


def lazy_group(
    commands: Mapping[str, Command],
    *,
    find: Callable[[str], Command | None] = lambda _: None,
    everything: Callable[[], Mapping[str, Command]] | None = None,
    problems: Callable[[], Mapping[str, str]] = dict[str, str],
) -> type[TyperGroup]:
    """The class of a group that has these commands: `Typer(cls=lazy_group({...}))`.

    `find` looks a further command up by its name; `everything` lists all commands, for the help page. `problems` names
    the systems whose commands are missing, and why: the help page ends with them, and so does the error for a command
    that does not exist.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._add(commands)

        def list_commands(self, ctx: Any) -> list[str]:
            if everything is not None:
                self._add(everything())
            return sorted(super().list_commands(ctx)) if everything is not None else super().list_commands(ctx)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in self.commands and (found := find(cmd_name)) is not None:
                self._add({cmd_name: found})
            command = super().get_command(ctx, cmd_name)
            if command is None:
                if everything is not None:
                    self._add(everything())  # for the suggestion of a similar name
                for system, reason in problems().items():
                    typer.echo(f"{system}: {reason}", err=True)
            return command

        def format_epilog(self, ctx: Any, formatter: Any) -> None:
            super().format_epilog(ctx, formatter)
            if found := problems():
                with formatter.section("Systems with errors"):
                    formatter.write_dl(list(found.items()))

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command.load() if isinstance(command, _Unloaded) else command, rest

        def _add(self, more: Mapping[str, Command]) -> None:
            for name, command in more.items():
                self.commands.setdefault(name, _Unloaded(name, command))

    return LazyGroup
