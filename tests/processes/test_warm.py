"""A warm process is as good as one that was started from nothing."""

import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.processes import start_warm
from tidegate import __version__

TIDEGATE = str(Path(sys.executable).with_name("tidegate"))
SCRIPT = """
import os, sys
print(os.getcwd(), os.environ["WORD"], sys.argv[1:], sys.stdin.read(), sorted(os.environ), flush=True)
print("to the other", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


async def test_a_process_runs_in_the_requested_environment(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    process = await start_warm(
        *(sys.executable, str(tmp_path / "script.py"), "7"),
        cwd=tmp_path,
        env={"WORD": "tide"},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await process.communicate(b"given")

    assert out.decode() == f"{tmp_path} tide ['7'] given ['WORD']\n"
    assert (err, process.returncode) == (b"to the other\n", 7)


async def test_it_is_a_separate_process_that_can_be_killed(tmp_path: Path):
    (tmp_path / "script.py").write_text("import time; print('there', flush=True); time.sleep(60)")
    process = await start_warm(
        sys.executable, str(tmp_path / "script.py"), cwd=tmp_path, env=dict(os.environ), stdout=PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"there\n"
    assert process.pid != os.getpid()
    process.kill()

    assert await process.wait() == -signal.SIGKILL


async def test_it_can_run_a_tidegate_command(tmp_path: Path):
    process = await start_warm(TIDEGATE, "--version", cwd=tmp_path, env=dict(os.environ), stdout=PIPE)

    assert (await process.communicate())[0].decode() == f"tidegate {__version__}\n"


async def test_a_failure_is_reported_with_its_reason(tmp_path: Path):
    (tmp_path / "script.py").write_text("raise LookupError('of tides')")
    process = await start_warm(
        sys.executable, str(tmp_path / "script.py"), cwd=tmp_path, env=dict(os.environ), stderr=PIPE
    )
    _, err = await process.communicate()

    assert process.returncode == 1
    assert err.endswith(b"LookupError: of tides\n")
