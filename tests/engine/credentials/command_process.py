"""`-m tests.engine.credentials.command_process`: run many commands in one process, to save startup time.

Standard input is a list of `{"arguments": [...], "given": "...", "variables": {...}}`, standard output what came of it.
"""

import os
import sys

import msgspec
from typer.testing import CliRunner

from tidegate.app.cli import app
from tidegate.core.errors import TidegateError
from tidegate.core.telemetry.redaction import redact_text


class Command(msgspec.Struct):
    arguments: list[str]
    given: str = ""
    variables: dict[str, str] = {}


def told(error: BaseException | None) -> str:
    """As the program itself tells it."""
    return f"tidegate: {redact_text(str(error))}" if isinstance(error, TidegateError) else ""


def run(command: Command) -> tuple[int, str]:
    os.environ.update(command.variables)
    ended = CliRunner().invoke(app, command.arguments, input=command.given)
    if ended.exception is not None and not isinstance(ended.exception, TidegateError | SystemExit):
        raise ended.exception
    return ended.exit_code, ended.output + told(ended.exception)


if __name__ == "__main__":
    commands = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Command])
    sys.stdout.buffer.write(msgspec.json.encode([run(command) for command in commands]))
