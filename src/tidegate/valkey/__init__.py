"""The connection, the embedded server, typed Lua scripts and their shared fragments."""

from tidegate.valkey.connection import Valkey
from tidegate.valkey.keys import Key, Unit
from tidegate.valkey.scripts import lua_script, run_together

__all__ = ["Key", "Unit", "Valkey", "lua_script", "run_together"]
