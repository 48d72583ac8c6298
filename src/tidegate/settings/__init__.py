"""All settings: from the environment, from a TOML file, otherwise the default.

    environment     TIDEGATE_BREAKER__WINDOW=20      wins
    TOML file       [breaker]                        the first of: $TIDEGATE_CONFIG, ./tidegate.toml,
                    window = 20                      tidegate.toml in the data folder

Unknown names are refused in both, so that typing errors are detected at the start. Names with the prefix
`TIDEGATE_TEST_` are ignored. Durations are written `250ms`, `30s` or `30`, `5m`, `2h`, `1d`.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.settings.model import Settings

__all__ = ["Settings"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.settings.model": "Settings",
    },
)
