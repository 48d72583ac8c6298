"""Sends the requests of a collector for GitHub to another address. Everything else of the collector is as installed.

As a program: `address.py URL module:function ARGUMENTS...` calls the function, with the arguments of a command line.
"""

import importlib
import re
import sys

from requests.adapters import HTTPAdapter

_API = re.compile(r"^https://api\.github\.com(:443)?")


def redirect_to(url: str) -> None:
    """Send what `requests` would send to GitHub to `url`. Links in the answers lead to GitHub again."""
    send = HTTPAdapter.send

    def send_there(self, request, *args, **kwargs):
        request.url = _API.sub(url, request.url)
        response = send(self, request, *args, **kwargs)
        for name in ("Link", "Location"):
            if name in response.headers:
                response.headers[name] = response.headers[name].replace(url, "https://api.github.com")
        return response

    HTTPAdapter.send = send_there


if __name__ == "__main__":
    redirect_to(sys.argv[1])
    module, _, function = sys.argv[2].partition(":")
    sys.argv = [module, *sys.argv[3:]]
    getattr(importlib.import_module(module), function)()
