"""Many commands in one process: most of the time of each would be spent on its start."""

import asyncio
import json
import shlex
import sys
from pathlib import Path

from tests.cli.test_commands import Ended, environment
from tests.processes import start_warm

_RUN_ALL = """
import json, sys
from typer.testing import CliRunner
from tidegate.app.cli import app
from tidegate.core.errors import TidegateError
told = []
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    error = result.exception
    if error is not None and not isinstance(error, TidegateError | SystemExit):
        raise error
    ours = str(error) if isinstance(error, TidegateError) else ""
    told.append([result.exit_code, result.stdout, result.stderr + ours])
print(json.dumps(told))
"""


async def tidegate_each(folder: Path, *commands: str, **variables: str) -> list[Ended]:
    """Run commands one after the other, as a user would who has set nothing but `variables`."""
    process = await start_warm(
        *(sys.executable, "-c", _RUN_ALL, json.dumps([shlex.split(command) for command in commands])),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=environment(folder, **variables),
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return [Ended(*each) for each in json.loads(out)]
