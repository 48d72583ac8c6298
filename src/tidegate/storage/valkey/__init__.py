"""The connection, the embedded server, typed Lua scripts and the functions that they share."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.storage.valkey.connection import Valkey
    from tidegate.storage.valkey.keys import Key, Unit
    from tidegate.storage.valkey.scripts import ScriptCall, lua_script, run_apart, run_together

__all__ = ["Key", "ScriptCall", "Unit", "Valkey", "lua_script", "run_apart", "run_together"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.storage.valkey.connection": "Valkey",
        "tidegate.storage.valkey.keys": "Key Unit",
        "tidegate.storage.valkey.scripts": "ScriptCall lua_script run_apart run_together",
    },
)
