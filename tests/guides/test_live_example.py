"""`make dashboard`: the example that shows all systems."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

from tests.waiting import until

ROOT = Path(__file__).parents[2]


async def test_ctrl_c_ends_the_example_while_it_starts():
    example = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.live"), cwd=ROOT, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    try:
        await until(lambda: is_starting(example.pid))
        example.send_signal(signal.SIGINT)
        output, _ = await example.communicate()
    finally:
        if example.returncode is None:
            example.kill()
            await example.wait()

    assert (example.returncode, output) == (0, b""), "it continued to start"


async def is_starting(process: int) -> bool:
    """Whether it has started `tidegate up`, which then takes a second at least to answer."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return any(b"\0up\0--json" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
