"""Base class of the configurations of all simulators."""

import msgspec


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Immutable struct with keyword-only fields."""
