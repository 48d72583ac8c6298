"""Secrets at rest: they open for whom they were sealed, and for nobody and nothing else."""

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.engine.credentials.keys import EncryptionKey, KeySource
from tidegate.engine.credentials.vault import CannotDecrypt, KeyFileMissing, Label, Sealed, Vault

LABEL = Label("octocat", "token", "https://api.github.com")
SECRET = "ghp_0123456789abcdef"


async def no() -> bool:
    return False


async def yes() -> bool:
    return True


def vault(*keys: EncryptionKey) -> Vault:
    given = ",".join(key.text for key in keys)
    return Vault(KeySource(Path("/nowhere"), given), is_in_use=no)


KEY = EncryptionKey.new()


@given(secret=st.text(max_size=200), name=st.text(max_size=50))
@settings(max_examples=examples(30))
async def test_a_sealed_secret_can_be_opened_and_its_repr_hides_it(secret: str, name: str):
    label = Label(name, "token", "https://api.github.com")
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    sealed = await vault(KEY).seal(label, secret)

    assert await vault(KEY).open(label, sealed) == secret
    if len(secret.encode()) >= 4:  # shorter ones may occur in random bytes
        assert secret.encode() not in base64.b64decode(sealed.text)
        assert secret not in sealed.text + sealed.key_id


async def test_sealing_the_same_secret_twice_gives_different_results():
    sealed = {(await vault(KEY).seal(LABEL, SECRET)).text for _ in range(5)}

    assert len(sealed) == 5


@pytest.mark.parametrize(
    "other",
    [
        Label("mallory", "token", "https://api.github.com"),
        Label("octocat", "installation", "https://api.github.com"),
        Label("octocat", "token", "https://evil.example"),
    ],
)
async def test_a_sealed_secret_copied_to_another_row_cannot_be_opened(other: Label):
    sealed = await vault(KEY).seal(LABEL, SECRET)

    with pytest.raises(CannotDecrypt, match="changed, or damaged"):
        await vault(KEY).open(other, sealed)


@given(data=st.data())
@settings(max_examples=examples(30))
async def test_a_sealed_secret_with_any_changed_byte_cannot_be_opened(data: st.DataObject):
    sealed = await vault(KEY).seal(LABEL, SECRET)
    raw = bytearray(base64.b64decode(sealed.text))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises(CannotDecrypt) as told:
        await vault(KEY).open(LABEL, Sealed(base64.b64encode(bytes(raw)).decode(), sealed.key_id))
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("text", ["", "AQ==", "no base64!", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"])
async def test_malformed_sealed_secrets_are_refused(text: str):
    with pytest.raises(CannotDecrypt):
        await vault(KEY).open(LABEL, Sealed(text, KEY.id))


async def test_a_secret_sealed_with_another_key_is_reported_by_key_number():
    sealed, other = await vault(KEY).seal(LABEL, SECRET), EncryptionKey.new()

    with pytest.raises(CannotDecrypt, match=f"with the key {KEY.id}, and TIDEGATE_CREDENTIALS_KEY holds {other.id}"):
        await vault(other).open(LABEL, sealed)


async def test_an_old_key_opens_and_the_first_key_seals():
    sealed, new = await vault(KEY).seal(LABEL, SECRET), EncryptionKey.new()
    both = vault(new, KEY)

    assert await both.open(LABEL, sealed) == SECRET
    assert (await both.seal(LABEL, SECRET)).key_id == new.id


async def test_a_key_rotated_by_another_process_is_loaded(tmp_path: Path):
    early = Vault(KeySource(tmp_path), is_in_use=no)
    await early.seal(LABEL, SECRET)

    KeySource(tmp_path).begin_rotation(needed=set())
    sealed = await Vault(KeySource(tmp_path), is_in_use=no).seal(LABEL, SECRET)

    assert await early.open(LABEL, sealed) == SECRET


async def test_a_lost_key_file_is_reported_and_not_replaced(tmp_path: Path):
    with pytest.raises(KeyFileMissing, match=r"credentials\.key is missing, and stored credentials need it"):
        await Vault(KeySource(tmp_path), is_in_use=yes).seal(LABEL, SECRET)

    assert not (tmp_path / "credentials.key").exists()


async def test_a_key_created_concurrently_by_another_process_is_used(tmp_path: Path):
    async def made_meanwhile() -> bool:
        KeySource(tmp_path).make()
        return True

    sealed = await Vault(KeySource(tmp_path), is_in_use=made_meanwhile).seal(LABEL, SECRET)

    assert await Vault(KeySource(tmp_path), is_in_use=yes).open(LABEL, sealed) == SECRET


async def test_a_fingerprint_depends_on_key_and_secret():
    ours = await vault(KEY).fingerprint(SECRET)

    assert ours == await vault(KEY).fingerprint(SECRET)
    assert ours != await vault(KEY).fingerprint(SECRET + "x")
    assert ours != await vault(EncryptionKey.new()).fingerprint(SECRET)
