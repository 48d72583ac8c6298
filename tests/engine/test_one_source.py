"""A command that collects from one source opens and imports nothing of other sources."""

import asyncio
from pathlib import Path

import pytest

from tests.cli.importing import imports_of
from tests.cli.test_collect import simulator
from tests.servers.migrated import migrated_folder
from tidegate.core.plugins import installed_systems

ALLOWED = ("cli", "core", "engine", "http", "primitives", "runtime", "settings", "storage", "systems.github")
"""`http` is settings, views and errors that the engine's texts use; no server."""
SINGLE = {"tidegate", "tidegate.connections", "tidegate.process", "tidegate.system", "tidegate.systems"}


@pytest.mark.full
async def test_a_github_collection_imports_no_other_system(tmp_path: Path):
    (tmp_path / "data").mkdir()
    folder = await migrated_folder(tmp_path / "data")
    async with simulator() as sim:
        login, token = sim.world.logins()[0], sim.token_of(sim.world.operators()[0])
        environment = {
            "TIDEGATE_DATA_DIR": str(folder),
            "TIDEGATE_GITHUB__API_URL": sim.url,
            "GITHUB_TOKEN": token,
        }
        found = await asyncio.to_thread(imports_of, [f"collect {login} --json"], environment)
    [looked] = found.values()

    assert looked.code == 0, looked.output
    ours = {name for name in looked.modules if name.split(".")[0] == "tidegate"}
    declared = {point.module for point in installed_systems().values()}
    declared |= {name.rpartition(".")[0] for name in declared}  # their packages
    foreign = {name for name in ours if not name.startswith(tuple(f"tidegate.{each}" for each in ALLOWED))}
    foreign = {name for name in foreign - SINGLE - declared if not name.startswith("tidegate.app")}
    assert foreign == set()
    assert not any(name.startswith(("tidegate.app.collecting", "tidegate.app.application")) for name in ours)
    assert "tidegate.systems.crawl.source" not in ours
    # The framework of HTTP takes a quarter of the time of all imports.
    assert "litestar" not in looked.modules
