"""The commands as a user runs them: in a process of their own, judged by what they print and their exit code."""

import asyncio
import json
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import start_warm
from tidegate import __version__

SECRET = "hunter2-and-more"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """That of a user who has set nothing but `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "GITHUB_"))}
    kept |= {"TIDEGATE_UPSTREAM__PRIVATE_HOSTS": '["127.0.0.1"]'}  # where the simulators are
    return kept | {"TIDEGATE_DATA_DIR": str(folder / "data"), "COLUMNS": "200"} | variables


async def tidegate(folder: Path, *arguments: str, **variables: str) -> Ended:
    return await run(str(Path(sys.executable).with_name("tidegate")), *arguments, folder=folder, **variables)


async def run(*command: str, folder: Path, **variables: str) -> Ended:
    process = await start_warm(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=environment(folder, **variables),
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def test_the_doctor_reports_a_new_installation_as_healthy(tmp_path: Path):
    ended = await tidegate(tmp_path, "doctor", "--json")

    assert (ended.code, ended.err) == (0, "")
    findings = {finding["check"]: finding for finding in json.loads(ended.out)}
    assert {check for check, finding in findings.items() if finding["verdict"] != "ok"} == {"credentials"}
    assert findings["credentials"]["verdict"] == "advice"
    assert findings["valkey (embedded)"]["found"].startswith("valkey 9.")
    assert findings["database (embedded)"]["found"].startswith("sqlite 3.")


async def test_the_doctor_gives_advice_for_an_unavailable_server(tmp_path: Path):
    url = f"redis://:{SECRET}@127.0.0.1:1"
    ended = await tidegate(tmp_path, "doctor", TIDEGATE_VALKEY_URL=url)

    assert ended.code == 1
    assert "failed" in ended.out
    assert "TIDEGATE_VALKEY_URL" in ended.out
    assert SECRET not in ended.out + ended.err


async def test_the_doctor_reports_a_server_of_the_wrong_kind(tmp_path: Path):
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as unknown_caller:
        port = unknown_caller.sockets[0].getsockname()[1]
        ended = await tidegate(tmp_path, "doctor", TIDEGATE_VALKEY_URL=f"redis://127.0.0.1:{port}")

    assert (ended.code, ended.err) == (1, "")
    assert "no Valkey or Redis" in ended.out


async def test_the_doctor_suggests_another_data_folder_when_this_one_is_unusable(tmp_path: Path):
    (tmp_path / "file").touch()
    ended = await tidegate(tmp_path, "doctor", "--json", TIDEGATE_DATA_DIR=str(tmp_path / "file" / "data"))

    assert ended.code == 1
    failed = {each["check"]: each["remedy"] for each in json.loads(ended.out) if each["verdict"] == "failed"}
    assert failed.keys() == {"data folder", "valkey (embedded)", "database (embedded)"}
    assert "TIDEGATE_DATA_DIR" in failed["valkey (embedded)"]
    assert not any("_URL" in remedy for remedy in failed.values())


@pytest.mark.every_server
async def test_the_doctor_reports_an_outdated_schema(tmp_path: Path, database_url: str):
    behind = await tidegate(tmp_path, "doctor", TIDEGATE_DATABASE_URL=database_url)
    assert behind.code == 1
    assert "tidegate migrate" in behind.out

    migrated = await tidegate(tmp_path, "migrate", "--json", TIDEGATE_DATABASE_URL=database_url)
    assert migrated.code == 0
    assert json.loads(migrated.out)["applied"]

    again = await tidegate(tmp_path, "migrate", TIDEGATE_DATABASE_URL=database_url)
    assert "up to date" in again.out
    assert (await tidegate(tmp_path, "doctor", TIDEGATE_DATABASE_URL=database_url)).code == 0


async def test_an_unknown_setting_is_refused_by_name_before_the_command_runs(tmp_path: Path):
    ended = await tidegate(tmp_path, "doctor", TIDEGATE_VALKY_URL="redis://localhost")

    assert ended.code == 1
    assert "TIDEGATE_VALKY_URL" in ended.err
    assert "Traceback" not in ended.err


async def test_settings_are_shown_without_secrets(tmp_path: Path):
    url = f"postgresql://tide:{SECRET}@db.example/tidegate"
    ended = await tidegate(tmp_path, "settings", "--json", TIDEGATE_DATABASE_URL=url)

    assert ended.code == 0
    shown = json.loads(ended.out)
    assert "db.example" in shown["database_url"]
    assert SECRET not in ended.out


async def test_settings_are_shown_with_their_values(tmp_path: Path):
    folder = tmp_path / "[/tide] [bold]gate"
    ended = await tidegate(tmp_path, "settings", TIDEGATE_DATA_DIR=str(folder), COLUMNS="400")

    assert (ended.code, ended.err) == (0, "")
    assert str(folder) in ended.out


async def test_the_version_is_printed(tmp_path: Path):
    assert (await tidegate(tmp_path, "--version")).out == f"tidegate {__version__}\n"


async def test_the_doctor_times_out_on_a_silent_server(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections come about, and nobody answers them
        url = f"mysql://tide:x@127.0.0.1:{silent.getsockname()[1]}/tidegate"
        hasty = "from tidegate.app.cli import doctor, main; doctor._PATIENCE_S = 1; main()"  # it has ten for each part
        ended = await run(sys.executable, "-c", hasty, "doctor", folder=tmp_path, TIDEGATE_DATABASE_URL=url)

    assert ended.code == 1
    assert "no answer within 1 s" in ended.out
    assert "data folder" in ended.out, "the parts before it were reported"


async def test_an_unreachable_upstream_is_reported_with_advice(tmp_path: Path):
    ended = await tidegate(
        tmp_path, "collect", "octocat", "--api-url", "http://127.0.0.1:1", GITHUB_TOKEN="ghp_" + "x" * 36
    )

    assert ended.code == 1
    assert "no connection" in ended.err
    assert "Check the address (`tidegate settings`, or --api-url)" in ended.err
    assert len(ended.err.splitlines()) == 1
