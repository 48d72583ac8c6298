"""What is said between a test and the process that forks for it."""

import msgspec


class Order(msgspec.Struct, frozen=True):
    """Start this; its standard input, output and error come along as file descriptors."""

    command: list[str]
    """`tidegate ...`, or `python` with `-m`, `-c` or a file; the first is a path."""
    environment: dict[str, str]
    folder: str
    owns_terminal: bool = False
    """Its standard input is a terminal, which becomes its own, so that Ctrl-C reaches it."""


class Born(msgspec.Struct, frozen=True, tag=True):
    """It runs."""

    pid: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """It ended; a negative code is the signal that killed it."""

    code: int
