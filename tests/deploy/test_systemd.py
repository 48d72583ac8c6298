"""The units for systemd: it takes them, finds them well guarded, and they start what there is.

No systemd runs where these tests do, so none is started here; its own checker reads them.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.stack import DEPLOY
from tests.servers.registry import record_used, skip_or_fail
from tidegate.app.cli.up import DRAIN_WITHIN

UNITS = ("tidegate.service", "tidegate-worker@.service")
TIDEGATE = "/opt/tidegate/bin/tidegate"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units with the `tidegate` of this environment, since the checker looks whether there is one."""
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("systemd-analyze", "it is not on the PATH")
    told = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
    record_used("systemd-analyze", told.split()[1])
    copied = tmp_path_factory.mktemp("units")
    for name in UNITS:
        text = unit(name).replace(TIDEGATE, str(Path(sys.executable).with_name("tidegate")))
        (copied / name.replace("@.", "@9101.")).write_text(text)
    return copied


def unit(name: str) -> str:
    return (DEPLOY / "systemd" / name).read_text()


def test_systemd_accepts_the_units(folder: Path):
    names = [str(each) for each in sorted(folder.iterdir())]
    checked = subprocess.run(["systemd-analyze", "verify", *names], capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
def test_the_systemd_exposure_score_is_low(folder: Path, name: str):
    """On its scale from 0 to 10; a unit that says nothing has 9.6."""
    file = str(folder / name.replace("@.", "@9101."))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", file]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    [exposure] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", said)

    assert float(exposure) <= 2


@pytest.mark.parametrize("name", UNITS)
def test_the_stop_timeout_covers_the_graceful_shutdown(name: str):
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", unit(name), re.MULTILINE)

    assert int(seconds) >= DRAIN_WITHIN.total_seconds() + 5
    assert "KillMode=process" in unit(name), "the embedded server is not one process's alone"


def test_both_units_have_the_same_sandboxing_options():
    first, second = ([line for line in unit(name).splitlines() if line.startswith(GUARDS)] for name in UNITS)

    assert first == second
    assert len(first) > 20


GUARDS = ("Protect", "Private", "Restrict", "SystemCall", "Capability", "Ambient", "NoNew", "Lock", "UMask", "State")
