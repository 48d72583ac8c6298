"""An upstream that cannot be asked about its tokens: they are used as they are, and calls show whether they work."""

from tidegate.core.errors import InvalidArgument
from tidegate.engine.credentials.authority import Account, Checked, Installation, IssuedToken


class TokenAuthority:
    """Takes every token of one source; tokens that share an allowance must be stored as one."""

    def __init__(self, source: str) -> None:
        self._source = source

    @property
    def audience(self) -> str:
        """The source: its tokens are sent where it sends its requests."""
        return self._source

    def account_of(self, installation: Installation) -> Account:
        """Raise: only tokens can be stored."""
        raise InvalidArgument("app", installation.app_id, f"the source {self._source!r} has no apps")

    async def check(self, secret: str, *, identify: bool) -> Checked:
        """Nothing is asked. The allowance is that of the one token of the environment; stored ones have their own."""
        del secret, identify
        return Checked(account=Account(allowance=f"environment@{self._source}", login=self._source))

    async def issue(self, installation: Installation, private_key: str) -> IssuedToken:
        """Raise: only tokens can be stored."""
        del private_key
        raise InvalidArgument("app", installation.app_id, f"the source {self._source!r} has no apps")
