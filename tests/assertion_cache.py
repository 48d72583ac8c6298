"""Rewrites the assertions of all test modules once, before the workers start.

pytest rewrites the `assert` statements of a module when it imports the module, and caches the result beside it. The
workers of pytest-xdist import all modules at the same time: without a cache, each worker rewrites each module.
"""

import os
from collections.abc import Sequence
from importlib.util import source_hash
from multiprocessing import get_context
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

_HEADER = slice(8, 16)
"""Where a cached module has the hash of its source."""


def fill(config: pytest.Config, modules: Sequence[Path]) -> None:
    """Rewrite those of `modules` whose cache is missing or outdated, on all cores."""
    outdated = [path for path in modules if not _is_cached(path)]
    shares = [outdated[n :: os.cpu_count() or 1] for n in range(os.cpu_count() or 1)]
    # Forked: a new interpreter would have to import pytest and its plugins first.
    processes = [get_context("fork").Process(target=_rewrite, args=(config, share)) for share in shares if share]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def cached(path: Path) -> Path:
    """Where pytest looks for the rewritten module."""
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"


def _is_cached(path: Path) -> bool:
    if not cached(path).exists():
        return False
    return cached(path).read_bytes()[_HEADER] == source_hash(path.read_bytes())[:8]


def _rewrite(config: pytest.Config, modules: Sequence[Path]) -> None:
    for path in modules:
        hashed, code = rewrite._rewrite_test(path, config)  # pyright: ignore[reportPrivateUsage]
        cached(path).parent.mkdir(exist_ok=True)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, hashed, cached(path))  # pyright: ignore[reportPrivateUsage]
