"""The server that tests of HTTP routes share."""

from tests.http.conftest import deployment

__all__ = ["deployment"]
