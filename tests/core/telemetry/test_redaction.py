"""Nothing secret is shown, wherever it stands; what is not secret stays readable."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.telemetry.redaction import fit_to_keep, is_secret_name, redact, redact_known, redact_text, redact_url

TOKEN = "gh" + "p_16C7e42F292c6912E7710c838347Ae178B4a"
"""Put together, so that scanners of the repository do not take it for a real one."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:hunter2@host:6379/0", "redis://:***@host:6379/0"),
        ("postgresql+asyncpg://me:hunter2@db/x failed", "postgresql+asyncpg://me:***@db/x failed"),
        ("redis://me:hun@ter2/hunter2@host/0", "redis://me:***@host/0"),
        ("redis://:1234/hunter2@host", "redis://:***@host"),
        ("redis:/:hunter2@host", "redis:/:***@host"),
        ("https://me:hunter2@host/a, then", "https://me:***@host/a, then"),
        (
            "cannot reach 'redis://u:hunter2@a' or 'redis://u:hunter2@b'",
            "cannot reach 'redis://u:***@a' or 'redis://u:***@b'",
        ),
        (f"401 for {TOKEN}.", "401 for ghp_***."),
        (f"https://{TOKEN}@github.example/x", "https://ghp_***@github.example/x"),
        ("github_pat_11ABCDEFG0_hunter2 expired", "github_pat_*** expired"),
        ("ghs_12345_eyJhbGciOi.hunter2-hunter2", "ghs_***"),
        ("x%20ghu_hunter2hunter2", "x%20ghu_***"),
        ("Authorization: Basic aHVudGVyMg==", "Authorization: ***"),
        ("{'Authorization': 'token hunter2', 'Accept': 'x'}", "{'Authorization': '***', 'Accept': 'x'}"),
        ("Bearer hunter2hunter2.x", "Bearer ***"),
        ("eyJhbGciOiJI.eyJzdWIi.hunter2", "***"),
        ("connect(password='hunt\\'er2', db=1)", "connect(password='***', db=1)"),
        ('{"client_secret": "hunter2", "n": 1}', '{"client_secret": "***", "n": 1}'),
        ("password='hunter2 cut off", "password='***'"),
        ("?access_token=hunter2&next=2", "?access_token=***&next=2"),
        ("api_key=hunter2, retry", "api_key=***, retry"),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY----- after", "*** after"),
        ("-----BEGIN PRIVATE KEY-----\nhunter2 cut off", "***"),
    ],
)
def test_a_secret_is_recognised_by_its_format(text: str, shown: str):
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8080/users/me@example.org",
        "redis://[::1]:6379/0",
        "unix:///run/valkey.sock",
        "unexpected token: FROM at line 3",
        "highs_and_lows_total",
        "the bearer of bad news",
        "mail to me@example.org at 10:41:10",
        "tokens_blocked=3 token_id=77",
        "a basic understanding",
    ],
)
def test_text_that_only_resembles_a_secret_is_kept(text: str):
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "token", "access_token", "accessToken", "GITHUB_TOKEN", "secret", "client_secret", "password", "db_password",
        "Authorization", "Proxy-Authorization", "Set-Cookie", "X-Api-Key", "apiKey", "private_key", "key_material",
        "encryption_keys", "token_value", "headers.authorization",
    ],
)  # fmt: skip
def test_a_secret_is_recognised_by_its_field_name(name: str):
    assert is_secret_name(name)
    assert redact("x", name=name) == "***"


@pytest.mark.parametrize(
    "name", ["key", "order_key", "token_id", "token_hash", "tokens_blocked", "stream", "tokenizer", "monkey", ""]
)
def test_values_of_other_field_names_are_kept(name: str):
    assert not is_secret_name(name)


def test_token_counts_are_kept_and_numeric_passwords_are_hidden():
    assert redact(3, name="tokens") == 3
    assert redact(1234, name="password") == "***"


def test_secrets_are_found_at_any_depth():
    shown = redact(
        {"headers": [{"Authorization": "x hunter2"}], "urls": ("redis://:hunter2@h",), b"k": {"tokens": ["hunter2"]}}
    )

    assert shown == {"headers": [{"Authorization": "***"}], "urls": ["redis://:***@h"], "k": {"tokens": ["***"]}}


def test_objects_are_rendered_as_text_without_secrets():
    @dataclass
    class Login:
        user: str
        password: str

    assert "hunter2" not in redact(Login("me", "hunter2"))
    assert redact(ValueError("redis://:hunter2@h")) == "redis://:***@h"
    assert redact(b"redis://:hunter2@h \xff") == "redis://:***@h \\xff"
    assert redact(Path("/tmp/x")) == "/tmp/x"
    assert redact(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01 00:00:00+00:00"


def test_an_object_whose_repr_fails_does_not_lose_the_line():
    class Shy:
        def __str__(self) -> str:
            raise RuntimeError

    assert redact({"a": Shy()}) == {"a": "<unprintable Shy>"}


def test_a_recursive_structure_is_rendered_finitely():
    endless: dict[str, object] = {"password": "hunter2"}
    endless["again"] = endless

    assert "hunter2" not in str(redact(endless))


@given(
    before=st.text(),
    after=st.text(),
    secret=st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=36, max_size=36),
    kind=st.sampled_from(["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"]),
)
def test_a_github_token_is_hidden_in_any_text(before: str, after: str, secret: str, kind: str):
    assert f"{kind}{secret}" not in redact_text(f"{before} {kind}{secret} {after}")


@given(
    password=st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="\"'<>"), min_size=12),
    scheme=st.sampled_from(["redis", "rediss", "redis+cluster", "postgresql", "mysql+asyncmy"]),
    user=st.sampled_from(["", "me"]),
)
def test_the_password_of_a_url_is_hidden_whatever_it_contains(password: str, scheme: str, user: str):
    assert redact_text(f"at {scheme}://{user}:{password}@host:1/0 now") == f"at {scheme}://{user}:***@host:1/0 now"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(), st.lists))
def test_redaction_is_idempotent(value: object):
    once = redact(value)

    assert redact(once) == once


@pytest.mark.parametrize(
    "name",
    ["key", "sig", "X-Amz-Signature", "x-goog-signature", "auth", "jwt", "api-key", "api%5Fkey", "sessionKey", "sid"],
)
def test_a_parameter_of_a_url_is_hidden_by_its_name(name: str):
    assert redact_url(f"https://h/p?page=2&{name}=hunter2#x") == f"https://h/p?page=2&{name}=***#x"


@pytest.mark.parametrize("query", ["page=2&keyword=a", "sort=key&per_page=100", "monkey=1", "signed=yes", "a=b;c=d"])
def test_other_parameters_of_a_url_are_kept(query: str):
    assert redact_url(f"https://h/key=1?{query}") == f"https://h/key=1?{query}"


def test_a_known_secret_is_hidden_at_every_position():
    assert redact_known("https://h/a+b/c1?appid=a%2Bb%2Fc1&x=1", "a+b/c1") == "https://h/***?appid=***&x=1"
    assert redact_known("https://h/page?x=1", "page") == "https://h/page?x=1"
    assert redact_known("text", "") == "text"


def test_control_characters_are_escaped_in_stored_text():
    assert fit_to_keep("a\x1b[2J\x9b2J\x07\x00\tb\r\nc é", most=100) == "a\\x1b[2J\\x9b2J\\x07\tb\r\nc é"


@pytest.mark.parametrize("before", ["\x1b", "\udcff"])
def test_a_secret_after_an_escaped_character_is_hidden(before: str):
    assert fit_to_keep(f"x{before}{TOKEN}", most=100).endswith("ghp_***")
