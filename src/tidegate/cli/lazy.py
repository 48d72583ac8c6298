"""Commands that are imported when they are run, and not before: `--help` and `--version` need none of them."""

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

PLAIN = None
"""The mode of help pages and of errors in the command line: without the library for markup, whose import takes longer
than everything else that they need."""


class Command(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    place: str
    """`module:name`; the name is that of a function, or of a `Typer` with commands of its own."""
    summary: str


class _Unloaded(TyperCommand):
    """Stands in the list of commands until it is called by its name."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name, help=command.summary, short_help=command.summary, rich_markup_mode=PLAIN)
        self._place = command.place

    def load(self) -> Any:
        """The command itself."""
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(module), attribute)
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


def lazy_group(commands: dict[str, Command]) -> type[TyperGroup]:
    """The class of a group that has these commands: `Typer(cls=lazy_group({...}))`."""

    class LazyGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            for name, command in commands.items():
                self.commands.setdefault(name, _Unloaded(name, command))

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command.load() if isinstance(command, _Unloaded) else command, rest

    return LazyGroup
