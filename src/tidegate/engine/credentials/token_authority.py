"""Authority of an upstream that cannot check tokens: they are used unchecked, and calls show whether they work."""

from tidegate.core.errors import InvalidArgument
from tidegate.engine.credentials.authority import Account, Installation, IssuedToken, SecretReport


class TokenAuthority:
    """Accepts every token of one source. Tokens that share an allowance must be stored as one credential."""

    def __init__(self, source: str) -> None:
        self._source = source

    @property
    def audience(self) -> str:
        """The source, since its tokens are sent wherever it sends requests."""
        return self._source

    def account_of(self, installation: Installation) -> Account:
        """Raise `InvalidArgument`, because the source has no apps."""
        raise InvalidArgument("app", installation.app_id, f"the source {self._source!r} has no apps")

    async def check(self, secret: str, *, identify: bool) -> SecretReport:
        """Accept the token without a call, as that of the environment; stored tokens have allowances of their own."""
        del secret, identify
        return SecretReport(account=Account(allowance=f"environment@{self._source}", login=self._source))

    async def issue(self, installation: Installation, private_key: str) -> IssuedToken:
        """Raise `InvalidArgument`, because the source has no apps."""
        del private_key
        raise InvalidArgument("app", installation.app_id, f"the source {self._source!r} has no apps")
