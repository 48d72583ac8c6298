"""`tidegate simulate` where the distribution of the simulators is not installed."""

import subprocess
import sys

WITHOUT = """
import sys
sys.path[:] = [path for path in sys.path if not path.endswith("simulators/src")]  # its editable installation
from tidegate.app.cli import main
main()
"""


def test_tidegate_simulate_names_the_package_to_install():
    command = [sys.executable, "-c", WITHOUT, "simulate", "game"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout) == (1, "")
    reason, _, advice = ran.stderr.rstrip("\n").rpartition(": pip install tidegate-simulators ")
    assert reason == "tidegate: the simulators are not installed"
    assert advice == "(in a clone: pip install ./simulators)"
