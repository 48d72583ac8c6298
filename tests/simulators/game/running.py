"""How the game is started in a process of its own."""

from pathlib import Path

SERVING = str(Path(__file__).with_name("serving_process.py"))
COMMAND = ("-c", "from tidegate.app.cli import main; main()", "simulate", "game", "--json")
