"""What may be asked, and how little of it is shown."""

import pytest
from pydantic import ValidationError

from tests.engine.upstream.servers import TOKEN, get
from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream import Request, UpstreamSettings


@pytest.mark.parametrize(
    "url",
    [
        "", "/path", "example.org", "ftp://example.org/", "http://", "http:///path", "http://h:port/", "http://[/",
        "http://example.org/a b", "http://example.org/\n", "http://exämple.org/", "http://user:hunter2@example.org/",
        f"https://{TOKEN}@example.org/",
    ],
)  # fmt: skip
def test_an_unusable_url_is_refused_without_showing_its_secret(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Request(url=url, purpose="test")

    assert TOKEN not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("A B", "x"), ("A:", "x"), ("A", "x\r\nB: y"), ("Authorization", f"{TOKEN}\n")]
)
def test_headers_with_line_breaks_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Request(url="http://example.org/", purpose="test", headers={name: value})

    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("method", ["", "get", "CONNECT", "TRACE", "BREW"])
def test_unknown_methods_are_refused(method: str) -> None:
    with pytest.raises(InvalidArgument):
        Request(url="http://example.org/", purpose="test", method=method)


def test_a_purpose_is_required() -> None:
    with pytest.raises(InvalidArgument):
        Request(url="http://example.org/", purpose="")


def test_the_repr_of_a_request_hides_secrets() -> None:
    request = get(f"http://example.org/?access_token={TOKEN}&page=2", Cookie="session=abc", Accept="text/plain")

    for text in (repr(request), str(request), f"{[request]}"):
        assert TOKEN not in text
        assert "abc" not in text
        assert "page=2" in text
        assert "'Accept': 'text/plain'" in text


@pytest.mark.parametrize(
    ("name", "value"), [("connections", 0), ("connect_timeout", 0), ("largest_body", 0), ("most_redirects", -1)]
)
def test_invalid_settings_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValidationError):
        UpstreamSettings.model_validate({name: value})
