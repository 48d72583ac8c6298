"""The public API is what `tidegate/__init__.py` lists: each name exists, is documented, and is imported lazily."""

import subprocess
import sys

import tidegate

LIGHT = """
import sys
import tidegate
print(sorted(name for name in sys.modules if name.partition(".")[0] in {"redis", "sqlalchemy", "pydantic", "msgspec"}))
print(sum(name.startswith("tidegate") for name in sys.modules))
"""


def test_every_name_exists_and_has_a_docstring():
    assert tidegate.__all__ == sorted(tidegate.__all__)
    found = {name: getattr(tidegate, name) for name in tidegate.__all__}

    undocumented = [name for name, each in found.items() if not (each.__doc__ or "").strip()]
    assert undocumented == []
    assert 40 <= len(found) <= 60


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(tidegate, "no_such_name")


def test_importing_the_package_imports_no_library():
    ran = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)

    libraries, ours = ran.stdout.splitlines()
    assert libraries == "[]"
    assert int(ours) <= 4
