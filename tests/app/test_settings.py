"""Settings come from the environment and a file, and a mistake in them is told in the user's words."""

import os
import traceback
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from tidegate.core.docstrings import field_docstrings
from tidegate.core.errors import InvalidSettings
from tidegate.settings import Settings
from tidegate.settings.model import compose
from tidegate.settings.reference import describe_settings
from tidegate.settings.sources import settings_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder and data folder, and no variable of ours."""
    for variable in [name for name in os.environ if name.upper().startswith("TIDEGATE_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    return working


def refusal() -> str:
    with pytest.raises(InvalidSettings) as refused:
        Settings.load()
    return str(refused.value)


def test_without_settings_embedded_servers_are_used(tmp_path: Path):
    settings = Settings.load()

    assert settings.valkey_url is None
    assert settings.effective_database_url == f"sqlite:///{tmp_path}/data/tidegate.db"
    assert settings.migrates_at_start
    assert settings.breaker.window == 10


def test_the_default_data_folder_is_the_platform_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("TIDEGATE_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)

    assert Settings.load().data_dir.is_relative_to(tmp_path)
    assert Settings.load().data_dir.name == "tidegate"


def test_a_relative_data_folder_becomes_absolute(monkeypatch: pytest.MonkeyPatch, folder: Path):
    monkeypatch.setenv("TIDEGATE_DATA_DIR", "here")

    assert Settings.load().data_dir == folder / "here"


def test_environment_variables_override_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "tidegate.toml").write_text("key_prefix = 'file'\n[breaker]\nwindow = 20\ntrials = 2\n")
    monkeypatch.setenv("TIDEGATE_BREAKER__WINDOW", "30")

    settings = Settings.load()

    assert settings.key_prefix == "file"
    assert settings.breaker.window == 30
    assert settings.breaker.trials == 2


def test_an_empty_variable_is_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Compose files and units set variables to nothing when they mean not to set them."""
    (folder / "tidegate.toml").write_text("key_prefix = 'file'")
    monkeypatch.setenv("TIDEGATE_KEY_PREFIX", "")

    assert Settings.load().key_prefix == "file"


def test_files_are_searched_as_named_file_then_working_folder_then_data_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tidegate.toml").write_text("key_prefix = 'data'")
    assert Settings.load().key_prefix == "data"

    (folder / "tidegate.toml").write_text("key_prefix = 'working'")
    assert Settings.load().key_prefix == "working"

    (tmp_path / "named.toml").write_text("key_prefix = 'named'")
    monkeypatch.setenv("TIDEGATE_CONFIG", str(tmp_path / "named.toml"))
    assert Settings.load().key_prefix == "named"


@pytest.mark.parametrize(
    ("written", "span"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30", timedelta(seconds=30)),
        ("1.5 s", timedelta(seconds=1.5)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("PT45S", timedelta(seconds=45)),
    ],
)
def test_durations_are_accepted_in_common_notations(written: str, span: timedelta, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_BREAKER__OPEN_FOR", written)

    assert Settings.load().breaker.open_for == span


@pytest.mark.parametrize("database", ["postgresql://u:p@db/tidegate", "mysql://u:p@db/tidegate"])
def test_a_database_that_is_not_embedded_is_not_migrated_automatically(database: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", database)
    assert not Settings.load().migrates_at_start

    monkeypatch.setenv("TIDEGATE_AUTO_MIGRATE", "true")
    assert Settings.load().migrates_at_start


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379/0",
        "rediss://user:pass@host",
        "unix:///run/valkey.sock",
        "redis+cluster://one:7000",
        "rediss+cluster://one:7000",
    ],
)
def test_every_kind_of_server_is_accepted(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_VALKEY_URL", url)

    assert Settings.load().valkey_url == url


def test_all_invalid_settings_are_reported_at_once_with_name_reason_and_suggestion(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    file = folder / "tidegate.toml"
    file.write_text("key_prefx = 'x'\nlog = 3\n[breaker]\nwindw = 3\ntrials = 0\nopen_for = 'soon'\n")
    monkeypatch.setenv("TIDEGATE_BREAKER_WINDOW", "7")
    monkeypatch.setenv("TIDEGATE_TRIALS", "7")
    monkeypatch.setenv("TIDEGATE_ZEBRA", "7")
    monkeypatch.setenv("TIDEGATE_BREAKER__FAILURE_RATE", "2")

    lines = [line.strip() for line in refusal().splitlines()]

    assert lines == [
        "9 invalid setting(s):",
        "TIDEGATE_BREAKER_WINDOW: unknown setting; did you mean TIDEGATE_BREAKER__WINDOW?",
        "TIDEGATE_BREAKER__FAILURE_RATE is '2': must be less than or equal to 1",
        "TIDEGATE_TRIALS: unknown setting; did you mean TIDEGATE_BREAKER__TRIALS?",
        "TIDEGATE_ZEBRA: unknown setting",
        f"breaker.open_for in {file} is 'soon': must be a duration, such as 250ms, 30s, 5m, 2h or 1d",
        f"breaker.trials in {file} is 0: must be greater than or equal to 1",
        f"breaker.windw in {file}: unknown setting; did you mean breaker.window?",
        f"key_prefx in {file}: unknown setting; did you mean key_prefix?",
        f"log in {file}: is a group of settings, not a setting",
    ]


def test_all_conflicting_settings_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    file = folder / "tidegate.toml"
    file.write_text("[membership]\nrenew_every = '1m'\n")
    monkeypatch.setenv("TIDEGATE_MEMBERSHIP__LEASE", "10s")

    assert (
        f"TIDEGATE_MEMBERSHIP__LEASE, membership.renew_every in {file}: renew_every must be shorter than lease"
        in refusal()
    )


def test_a_list_is_read_from_a_table_or_from_json(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "tidegate.toml").write_text("[[limiter.limits]]\nname = 'all'\npermits = 5\nwindow = '2s'\n")
    monkeypatch.setenv("TIDEGATE_LIMITER__RATES", '[{"name": "pace", "per_second": 2, "burst": 9}]')

    settings = Settings.load()

    assert [(limit.permits, limit.window) for limit in settings.limiter.limits] == [(5, timedelta(seconds=2))]
    assert [rate.burst for rate in settings.limiter.rates] == [9]


def test_an_invalid_list_item_is_reported_with_its_index(folder: Path):
    file = folder / "tidegate.toml"
    file.write_text("[[limiter.limits]]\nname = 'all'\npermits = 0\nwindow = 'soon'\npermitz = 3\n")

    text = refusal()

    assert f"limiter.limits in {file} 0 permits is 0: must be greater than or equal to 1" in text
    assert f"limiter.limits in {file} 0 window is 'soon': must be a duration" in text
    assert f"limiter.limits in {file} 0 permitz: unknown setting" in text


def test_a_list_that_is_not_json_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_LIMITER__LIMITS", "[{")

    assert refusal() == "TIDEGATE_LIMITER__LIMITS: must be JSON, as it is a list"


def test_a_group_cannot_be_set_by_one_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_BREAKER", '{"window": 3}')

    assert "TIDEGATE_BREAKER: unknown setting" in refusal()


def test_variables_reserved_for_tests_are_ignored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_TEST_REQUIRE_ALL_SERVERS", "1")

    Settings.load()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://:hunter2@host", "must start with one of redis"),
        ("redis:/:hunter2@host", "cannot be read"),
        ("redis://:hunter2@", "names no host"),
        ("redis://:hunter2@host:port", "cannot be read"),
        ("redis://:hunter2/x@host", "cannot be read"),
        ("redis://:hunter2\u2100@host", "cannot be read"),
        ("redis://[:hunter2@host", "cannot be read"),
        ("unix://", "names no socket"),
        ("hunter2", "must start with"),
    ],
)
def test_an_invalid_url_is_refused_without_showing_its_password(url: str, reason: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_VALKEY_URL", url)

    with pytest.raises(InvalidSettings) as refused:
        Settings.load()

    assert f"TIDEGATE_VALKEY_URL: {reason}" in str(refused.value)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    assert refused.value.__context__ is None


@pytest.mark.parametrize("url", ["oracle://u:hunter2@db/x", "postgres//u:hunter2@db", "hunter2", "sqlite://"])
def test_an_invalid_database_url_is_refused_without_showing_its_password(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", url)

    text = refusal()

    assert "TIDEGATE_DATABASE_URL: " in text
    assert "hunter2" not in text


def test_the_repr_of_settings_hides_passwords():
    settings = Settings(valkey_url="redis://:hunter2@h", database_url="postgresql://u:hunter2@h/d")

    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)


def test_a_key_prefix_with_invalid_characters_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_KEY_PREFIX", "a{b}")

    assert "TIDEGATE_KEY_PREFIX is 'a{b}': must be printable and contain none of | { }" in refusal()


def test_a_named_settings_file_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TIDEGATE_CONFIG", str(tmp_path / "missing.toml"))

    assert refusal() == f"{tmp_path}/missing.toml cannot be read: No such file or directory"


@pytest.mark.parametrize("content", [b"key_prefix = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_settings_file_that_is_not_toml_is_an_error(content: bytes, folder: Path):
    (folder / "tidegate.toml").write_bytes(content)

    assert "is not a TOML file" in refusal()


def test_settings_created_in_code_ignore_environment_and_files(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "tidegate.toml").write_text("key_prefix = 'file'")
    monkeypatch.setenv("TIDEGATE_BREAKER__WINDOW", "30")

    settings = Settings(data_dir=folder)

    assert settings.key_prefix == "tidegate"
    assert settings.breaker.window == 10


def test_settings_are_immutable():
    settings = Settings()

    with pytest.raises(ValidationError):
        settings.key_prefix = "other"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValidationError):
        settings.breaker.window = 3  # pyright: ignore[reportAttributeAccessIssue]


def groups(model: type[BaseModel]) -> list[type[BaseModel]]:
    inner = [field.annotation for field in model.model_fields.values()]
    found = [each for each in inner if isinstance(each, type) and issubclass(each, BaseModel)]
    return [model, *(deeper for each in found for deeper in groups(each))]


@pytest.mark.parametrize("group", groups(compose()), ids=lambda group: group.__name__)
def test_every_group_is_frozen_refuses_unknown_fields_and_documents_its_fields(group: type[BaseModel]):
    assert group.model_config.get("frozen")
    assert group.model_config.get("extra") == "forbid" or issubclass(group, Settings), "it refuses them itself"
    own = {path[0] for path, _ in settings_of(group) if len(path) == 1}
    assert own - set(field_docstrings(group)) == set()


def test_every_default_is_valid():
    for path, field in settings_of(compose()):
        assert not field.is_required(), f"{'.'.join(path)} has no default"
    Settings.model_validate(Settings().model_dump())


def test_the_reference_page_is_current():
    page = (ROOT / "docs/reference/settings.md").read_text()

    assert page == describe_settings(), "run: python -m tidegate.settings.reference > docs/reference/settings.md"


def test_an_unusable_data_folder_is_reported_on_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("/proc/nope", f"/tmp/{'x' * 300}"):
        monkeypatch.setenv("TIDEGATE_DATA_DIR", folder)
        settings = Settings.load()
        with pytest.raises(InvalidSettings, match=r"cannot be used: .* TIDEGATE_DATA_DIR"):
            settings.make_data_dir()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDEGATE_MEMBERSHIP__RENEW_EVERY", "PT0.0004S"),
        ("TIDEGATE_MEMBERSHIP__RENEW_EVERY", "PT0.05S"),
        ("TIDEGATE_MEMBERSHIP__LEASE", "P40D"),
        ("TIDEGATE_STREAM__IDLE_LIMIT", "PT0.0001S"),
        ("TIDEGATE_STREAM__IDLE_LIMIT", "PT0.5S"),
        ("TIDEGATE_STREAM__REMEMBER_ADDS_FOR", "PT0.0001S"),
        ("TIDEGATE_STREAM__GROUP", "a|b"),
        ("TIDEGATE_STREAM__MAX_DELIVERIES", "1" + "0" * 18),
    ],
)
def test_values_that_overload_a_server_or_break_scripts_are_refused(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, value)

    assert variable.partition("__")[0] in refusal()
