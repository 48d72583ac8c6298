"""Runs a collector that writes messages to its standard output, one JSON object per line."""

import json
import subprocess
import sys
from pathlib import Path


def run(url, entry, *arguments, read=None, collect=False):
    """Run `module:function`; pass each message to `read`, or return the whole output. Returns the exit code."""
    command = [sys.executable, str(Path(__file__).with_name("address.py")), url, entry, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if collect:
        return process.communicate()[0]
    for line in process.stdout:
        if line.startswith("{"):
            read(json.loads(line))
    return process.wait()
