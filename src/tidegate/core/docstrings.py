"""Reads the docstrings under the fields of classes, for reference pages and the OpenAPI document.

They are read from the source when a page needs them: pydantic would read them at each start of a command.
"""

import ast
import inspect
import sys
from functools import cache
from typing import Any


def field_docstrings(described: type[Any]) -> dict[str, str]:
    """The docstrings under the fields of a class and of its base classes, each in one line."""
    found: dict[str, str] = {}
    # Base classes first, so that a subclass replaces the description of a field.
    for each in reversed(described.__mro__):
        definition = _classes_in(each.__module__).get(each.__qualname__)
        if definition is not None:
            found |= _docstrings_in(definition)
    return found


def _docstrings_in(definition: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[field.target.id] = " ".join(text.value.split())
    return found


@cache
def _classes_in(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by name; cached, because many classes share few modules."""
    try:
        body = ast.parse(inspect.getsource(sys.modules[module])).body
    except (KeyError, OSError, SyntaxError, TypeError):  # the source is not available
        return {}
    return {each.name: each for each in body if isinstance(each, ast.ClassDef)}
