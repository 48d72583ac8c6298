"""The key file: private, made once whoever comes, whole or not there at all."""

import asyncio
import base64
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tidegate.core.errors import InvalidSettings
from tidegate.engine.credentials.keys import EncryptionKey, KeySource

FOUR_MAKERS = """
import os, sys
from pathlib import Path
from tidegate.engine.credentials.keys import KeySource
source, (gate, opened) = KeySource(Path(sys.argv[1])), os.pipe()
for _ in range(4):
    if os.fork() == 0:
        os.close(opened)
        os.read(gate, 1)
        os.write(1, f"{source.make()[0].id}\\n".encode())
        os._exit(0)
os.close(opened)  # all are there: now they go
for _ in range(4):
    assert os.wait()[1] == 0
"""
DIES_BEFORE_THE_NAME = """
import os, signal, sys
from pathlib import Path
from tidegate.engine.credentials.keys import KeySource
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
Path.replace = die
KeySource(Path(sys.argv[1])).make()
"""
DIES_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from tidegate.engine.credentials.keys import KeySource
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
KeySource(Path(sys.argv[1])).make()
"""


async def python(code: str, folder: Path) -> WarmProcess:
    return await start_warm(
        *(sys.executable, "-c", code, str(folder)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


def test_a_key_file_is_created_once_and_readable_by_its_owner_only(tmp_path: Path):
    source = KeySource(tmp_path)
    assert source.read() is None

    made = source.make()

    assert source.make() == source.read() == made
    assert (tmp_path / "credentials.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o620])
def test_a_file_readable_or_writable_by_others_is_refused_with_the_remedy(tmp_path: Path, mode: int):
    source = KeySource(tmp_path)
    source.make()
    path = tmp_path / "credentials.key"
    path.chmod(mode)

    with pytest.raises(InvalidSettings, match=f"chmod 600 {path}"):
        source.read()

    path.chmod(0o600)
    assert source.read()


@pytest.mark.parametrize("content", [b"", b"\n\n# only words\n", b"hunter2", bytes(range(200, 232)), b"QUJD\n"])
def test_a_file_without_a_key_is_refused_and_not_replaced(tmp_path: Path, content: bytes):
    path = tmp_path / "credentials.key"
    path.write_bytes(content)
    path.chmod(0o600)

    for attempt in (KeySource(tmp_path).read, KeySource(tmp_path).make):
        with pytest.raises(InvalidSettings, match=r"credentials\.key holds") as told:
            attempt()
        assert "hunter2" not in str(told.value)
    assert path.read_bytes() == content


def test_a_folder_at_the_path_of_the_file_is_refused(tmp_path: Path):
    (tmp_path / "credentials.key").mkdir()

    with pytest.raises(InvalidSettings, match=r"credentials\.key"):
        KeySource(tmp_path).read()


def test_keys_of_the_environment_take_precedence_and_no_file_is_created(tmp_path: Path):
    new, old = EncryptionKey.new(), EncryptionKey.new()
    source = KeySource(tmp_path, f"{new.text}, {old.text}")

    assert source.make() == source.read() == [new, old]
    assert list(tmp_path.iterdir()) == []


def test_both_base64_alphabets_are_accepted(tmp_path: Path):
    key = EncryptionKey(b"\xfb\xff" * 16)

    assert KeySource(tmp_path, base64.urlsafe_b64encode(key.material).decode()).read() == [key]
    assert KeySource(tmp_path, key.text).read() == [key]


@pytest.mark.parametrize("given", ["hunter2", "A" * 43, "", "ümlaut"])
def test_an_invalid_key_is_refused_without_being_shown(tmp_path: Path, given: str):
    with pytest.raises(InvalidSettings, match="TIDEGATE_CREDENTIALS_KEY") as told:
        KeySource(tmp_path, given)

    assert not given or given not in str(told.value)


def test_the_repr_of_a_key_has_only_its_number():
    key = EncryptionKey.new()

    assert key.text not in repr(key)
    assert key.material.hex() not in repr(key)
    assert key.derive("secrets") != key.derive("fingerprints")
    assert key.id not in key.derive("secrets").hex()


@pytest.mark.race
async def test_concurrent_processes_get_the_same_key(tmp_path: Path):
    told = (await (await python(FOUR_MAKERS, tmp_path)).communicate())[0].decode().split()

    found = KeySource(tmp_path).read()
    assert found
    assert told == [found[0].id] * 4


@pytest.mark.parametrize("code", [DIES_BEFORE_THE_NAME, DIES_WHILE_WRITING])
async def test_a_process_killed_while_creating_a_key_leaves_no_key_file(tmp_path: Path, code: str):
    dying = await python(code, tmp_path)
    assert await dying.wait() == -signal.SIGKILL
    assert KeySource(tmp_path).read() is None

    made = KeySource(tmp_path).make()

    assert KeySource(tmp_path).read() == made
    assert {path.name for path in tmp_path.iterdir()} == {"credentials.key", "credentials.lock"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_rotation_keeps_the_previous_key_and_all_keys_in_use(tmp_path: Path):
    source = KeySource(tmp_path)
    (first,) = source.make()
    (second, *_) = source.begin_rotation(needed=set())
    assert source.read() == [second, first]

    (third, *_) = source.begin_rotation(needed={first.id})
    assert source.read() == [third, second, first]

    (fourth, *_) = source.begin_rotation(needed=set())
    assert source.read() == [fourth, third]
