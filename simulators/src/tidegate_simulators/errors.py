"""Errors of the simulators. This distribution does not import `tidegate`, which it tests."""


class SimulatorError(Exception):
    """Base class of all errors that a simulator raises on purpose."""


class InvalidArgument(SimulatorError, ValueError):
    """`name` may not be `value`, because of `reason`."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name} is {value!r}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class NotFound(SimulatorError):
    """There is no `kind` with the id `ident`."""

    def __init__(self, kind: str, ident: object) -> None:
        super().__init__(f"there is no {kind} {ident!r}")
        self.kind, self.ident = kind, ident
