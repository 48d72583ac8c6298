"""Scripts made up by a test: a folder with Lua files and a module with their stubs."""

import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tidegate.core.ids import new_id
from tidegate.storage.valkey import scripts

ImportStub = Callable[..., ModuleType]


@pytest.fixture
def import_stub(tmp_path: Path) -> Iterator[ImportStub]:
    """Write `files` and a module with this stub beside them, and import it."""
    known = dict(scripts._registry)  # pyright: ignore[reportPrivateUsage]
    modules: list[str] = []

    def write_and_import(stub: str, **files: str) -> ModuleType:
        name = f"stub_{new_id().replace('-', '')}"
        folder = tmp_path / name
        folder.mkdir()
        for file, text in files.items():
            (folder / f"{file}.lua").write_text(textwrap.dedent(text).lstrip())
        head = "from typing import Any\nfrom tidegate.storage.valkey import Key, Valkey, lua_script\n"
        (folder / "module.py").write_text(head + textwrap.dedent(stub))
        spec = importlib.util.spec_from_file_location(name, folder / "module.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        modules.append(name)
        spec.loader.exec_module(module)
        return module

    yield write_and_import
    for name in modules:
        del sys.modules[name]
    scripts._registry.clear()  # pyright: ignore[reportPrivateUsage]
    scripts._registry.update(known)  # pyright: ignore[reportPrivateUsage]
