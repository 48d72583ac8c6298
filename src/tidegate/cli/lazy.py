"""Lazy commands: their modules are imported when they run, so that `--help` and `--version` are fast."""

from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidegate.core.plugins import load_place
from tidegate.system import Command

PLAIN = None
"""Plain help pages and error messages: the import of the library for markup would take longer than everything else."""


class _Unloaded(TyperCommand):
    """Placeholder for a command that is not imported yet."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name, help=command.summary, short_help=command.summary, rich_markup_mode=PLAIN)
        self._place = command.place

    def load(self) -> Any:
        """Import the module of the command."""
        found = load_place(self._place)
        if isinstance(found, typer.Typer):
            found.rich_markup_mode = PLAIN
            return _with_summaries(typer.main.get_group(found))
        alone = typer.Typer(add_completion=False, rich_markup_mode=PLAIN)
        alone.command(self.name)(found)
        return typer.main.get_command(alone)


def _with_summaries(group: TyperGroup) -> TyperGroup:
    """Show the complete summary of each command in the list, on several lines if necessary."""
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
    """The class of a group with these commands: `Typer(cls=lazy_group({...}))`.

    `find` finds a further command by name; `everything` lists all commands, for the help page. `problems` maps systems
    with missing commands to the reasons, which are shown on the help page and with the error for an unknown command.
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
                # Commands of the application win over those of systems with the same name.
                self.commands.setdefault(name, _Unloaded(name, command))

    return LazyGroup
