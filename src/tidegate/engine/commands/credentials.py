"""`tidegate credentials`: manage tokens and apps. Secrets are never passed as arguments and never printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import clock, counted, number
from tidegate.core.errors import InvalidArgument, TidegateError
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.commands.collect import SOURCE, plugin_for

if TYPE_CHECKING:
    from tidegate.engine.credentials import Credential, CredentialCheck, CredentialManager, Rotation
    from tidegate.engine.source_plugin import SourcePlugin
    from tidegate.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Manage the tokens and apps that requests use.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_API_URL = typer.Option(None, help="URL of the GitHub API, for GitHub Enterprise or a simulator.")
_NONE_YET = "There are no credentials. Add one: tidegate credentials add"


class _AddOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `add` without the secret."""

    name: str | None
    owner: str | None
    user_id: str | None
    app_id: int | None
    installation_id: int | None
    check: bool


@app.command()
def add(
    name: str | None = typer.Argument(None, help="Name of the credential. Default: the login of its account."),
    *,
    owner: str | None = typer.Option(None, help="The person or team responsible for it. Default: the login."),
    user: str | None = typer.Option(None, help="Serve only the runs of this user. Default: the runs of all users."),
    from_env: str | None = typer.Option(None, help="Name of an environment variable that contains the secret."),
    from_file: Path | None = typer.Option(None, help="File that contains the secret."),
    app_id: int | None = typer.Option(None, help="Id of a GitHub App; the secret is then its private key."),
    installation_id: int | None = typer.Option(None, help="Id of the app's installation."),
    no_check: bool = typer.Option(False, "--no-check", help="Store it without verifying it with GitHub."),
    source: str | None = SOURCE,
    api_url: str | None = _API_URL,
    as_json: bool = _JSON,
) -> None:
    """Store a token, or the private key of a GitHub App. An existing credential of the same name gets the new secret.

    The secret is read from a hidden prompt, standard input, an environment variable or a file. It is encrypted with
    the key in TIDEGATE_CREDENTIALS_KEY, otherwise with credentials.key in the data folder.
    """
    _refuse_secret(name)
    if (app_id is None) != (installation_id is None):
        raise InvalidArgument("app", app_id or installation_id, "an app needs both --app-id and --installation-id")
    plugin = plugin_for(load_settings(), source, api_url)
    given = _AddOptions(
        name=name,
        owner=owner,
        user_id=None if user is None else plugin.user(user),
        app_id=app_id,
        installation_id=installation_id,
        check=not no_check and plugin.checks_tokens,
    )
    if no_check and owner is None:
        raise InvalidArgument(
            "owner", "", "is required with --no-check: --owner NAME, the person or team responsible for it"
        )
    added = run(_add(plugin, given, _read_secret(from_env, from_file, is_key=app_id is not None)))
    if as_json:
        typer.echo(msgspec.json.encode({"credential": added}))
        return
    typer.echo(f"Stored {added.name}: {_description(added)}, owned by {added.owner}, serves {_served_users(added)}.")
    if no_check:
        typer.echo(f"It was not verified. Test it before you rely on it: tidegate credentials test {added.name}")


@app.command("list")
def list_(
    *,
    source: str | None = typer.Option(None, "--source", help="Only credentials of this source."),
    as_json: bool = _JSON,
) -> None:
    """List the credentials of all sources with account, served users and validity. Secrets are not printed."""
    settings = load_settings()
    found = run(_list(settings, source))
    if as_json:
        typer.echo(msgspec.json.encode({"credentials": found}))
    elif not found:
        typer.echo(_NONE_YET)
    else:
        plugin = plugin_for(settings, None)
        _print_table(found, plugin.name, plugin.usual_audience)


@app.command()
def remove(
    name: str = typer.Argument(help="Name as printed by `list`."), *, source: str | None = SOURCE, as_json: bool = _JSON
) -> None:
    """Delete a credential. Requests in progress are not interrupted. The secret is not revoked at the upstream."""
    removed = run(_remove(plugin_for(load_settings(), source), name))
    if as_json:
        typer.echo(msgspec.json.encode({"removed": removed}))
    else:
        typer.echo(f"Removed {removed.name}: {_description(removed)}, served {_served_users(removed)}.")


@app.command("test")
def probe(
    names: list[str] = typer.Argument(None, help="Names as printed by `list`. Default: all."),
    *,
    source: str | None = SOURCE,
    api_url: str | None = _API_URL,
    as_json: bool = _JSON,
) -> None:
    """Check credentials with the upstream and print the remaining quota. Exit code 1 if one is not valid.

    A credential that was rejected before is used again if it is valid now.
    """
    plugin = plugin_for(load_settings(), source, api_url)
    if not plugin.checks_tokens:
        raise InvalidArgument("source", plugin.name, "does not support checks; a run shows whether its token works")
    checks = run(_test(plugin, names or []))
    if as_json:
        typer.echo(msgspec.json.encode({"checks": checks}))
    elif not checks:
        typer.echo(_NONE_YET)
    else:
        for check in checks:
            typer.echo(_check_text(check, datetime.now(UTC)))
    if not all(check.is_valid for check in checks):
        raise typer.Exit(1)


@app.command("rotate-key")
def rotate_key(*, as_json: bool = _JSON) -> None:
    """Encrypt all secrets with a new key.

    If the keys are in TIDEGATE_CREDENTIALS_KEY, first put the new key before the old one, separated by a comma. Run
    this command, then remove the old key.
    """
    done = run(_rotate(load_settings()))
    if as_json:
        typer.echo(msgspec.json.encode(done))
        return
    typer.echo(f"{counted(done.encrypted_anew, 'secret')} re-encrypted with the key {done.key_id} of {done.place}.")


async def _add(plugin: SourcePlugin, given: _AddOptions, secret: str) -> Credential:
    """Add a token, or the installation of an app if its ids are given."""
    from tidegate.engine.collection import open_credentials

    async with open_credentials(plugin.settings, plugin.name) as manager:
        if given.app_id is None or given.installation_id is None:
            owner = given.owner if given.check else given.owner or plugin.name
            return await manager.add_token(
                secret, owner=owner, user_id=given.user_id, name=given.name, check=given.check
            )
        if given.owner is None:
            raise InvalidArgument(
                "owner", "", "is required for an app: --owner NAME, the person or team responsible for it"
            )
        return await manager.add_installation(
            secret,
            app_id=given.app_id,
            installation_id=given.installation_id,
            owner=given.owner,
            user_id=given.user_id,
            name=given.name,
            check=given.check,
        )


async def _list(settings: Settings, source: str | None) -> Sequence[Credential]:
    from tidegate.connections import open_database
    from tidegate.engine.credentials import records

    async with open_database(settings) as database:
        return [stored.credential for stored in await database.read(records.everything, source)]


async def _remove(plugin: SourcePlugin, name: str) -> Credential:
    from tidegate.engine.collection import open_credentials

    async with open_credentials(plugin.settings, plugin.name) as manager:
        return await manager.remove(name)


async def _test(plugin: SourcePlugin, names: Sequence[str]) -> list[CredentialCheck]:
    from tidegate.engine.collection import open_credentials
    from tidegate.engine.credentials import CredentialKind

    async with open_credentials(plugin.settings, plugin.name) as manager:
        stored = [one for one in await manager.list() if one.kind is not CredentialKind.ENVIRONMENT]
        if names:
            return [await manager.test(name) for name in dict.fromkeys(names)]
        return [await _test_one(manager, one.name) for one in stored if one.audience == manager.audience]


async def _test_one(manager: CredentialManager, name: str) -> CredentialCheck:
    """Test one of several credentials; an error becomes its result, so that the others are tested too."""
    from tidegate.engine.credentials import CredentialCheck

    try:
        return await manager.test(name)
    except TidegateError as error:
        account = (await manager.get(name)).account
        return CredentialCheck(name=name, is_valid=None, reason=redact_text(str(error)), account=account)


async def _rotate(settings: Settings) -> Rotation:
    from tidegate.engine.collection import open_credentials

    async with open_credentials(settings, plugin_for(settings, None).name) as manager:
        return await manager.rotate_key()


def _refuse_secret(name: str | None) -> None:
    """Refuse a token that was passed as a name, without printing it. It is already in the history of the shell."""
    if name is not None and redact_text(name) != name:
        raise InvalidArgument(
            "name",
            "…",
            "looks like a token. Other users can read command lines: revoke it, then enter a new one at the prompt",
        )


def _read_secret(variable: str | None, file: Path | None, *, is_key: bool) -> str:
    if variable is not None and file is not None:
        raise InvalidArgument("from_file", str(file), "cannot be combined with --from-env")
    if variable is not None:
        return _from_environment(variable)
    if file is not None:
        return _from_file(file)
    if not sys.stdin.isatty():
        return sys.stdin.read()
    if is_key:
        raise InvalidArgument("private key", "", "has several lines: use --from-file or standard input")
    return getpass("Token (not shown): ")  # disables the echo before it prints, unlike typer's prompt


def _from_environment(variable: str) -> str:
    _refuse_secret(variable)
    value = os.environ.get(variable)
    if not value:
        raise InvalidArgument("from_env", variable, "is not set or empty")
    return value


def _from_file(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError as error:
        raise InvalidArgument("from_file", str(file), error.strerror or "cannot be read") from None
    except ValueError:
        raise InvalidArgument("from_file", str(file), "is not ASCII text") from None


def _print_table(credentials: Sequence[Credential], default: str, usual: str) -> None:
    """Print one line per credential. The column for the address is added if one is sent elsewhere than to `usual`."""
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table

    now = datetime.now(UTC)
    elsewhere = ["sent to"] if any(one.audience not in (usual, one.source) for one in credentials) else []
    sources = ["source"] if any(one.source != default for one in credentials) else []
    columns = (*sources, "name", "credential", "owner", "serves", *elsewhere, "checked", "state")
    table = Table(*columns, box=None, pad_edge=False)
    for one in credentials:
        checked = "never" if one.checked_at is None else clock(one.checked_at, now)
        where = [one.audience] if elsewhere else []
        of = [one.source] if sources else []
        row = (*of, one.name, _description(one), one.owner, _served_users(one), *where, checked, _state(one, now))
        table.add_row(*(escape(text) for text in row))
    print_table(table)


def _description(one: Credential) -> str:
    from tidegate.engine.credentials import CredentialKind

    match one.kind:
        case CredentialKind.INSTALLATION:
            return f"installation {one.details['installation_id']} of app {one.details['app_id']}"
        case CredentialKind.ENVIRONMENT:
            return f"token of {one.account}, not stored"
        case CredentialKind.TOKEN:
            return f"token of {one.account}"


def _served_users(one: Credential) -> str:
    return "all users" if one.user_id is None else f"the user {one.user_id}"


def _state(one: Credential, now: datetime) -> str:
    from tidegate.engine.credentials import CredentialState

    if one.state is CredentialState.VALID:
        return "valid"
    since = "" if one.invalid_at is None else f" since {clock(one.invalid_at, now)}"
    return f"invalid{since}: {one.invalid_reason}"


def _check_text(check: CredentialCheck, now: datetime) -> str:
    if not check.is_valid:
        return f"{check.name}: {'not tested' if check.is_valid is None else 'invalid'}: {check.reason}"
    lines = [f"{check.name}: valid, {check.account}"]
    if check.scopes is not None:
        lines.append(f"  scopes: {', '.join(check.scopes) or 'none: public data only'}")
    if check.expires_at is not None:
        lines.append(f"  expires: {clock(check.expires_at, now)}")
    for bucket, left in check.left.items():
        resets = f", window ends {clock(left.resets_at, now)}" if left.remaining < left.limit else ""
        lines.append(f"  {bucket}: {number(left.remaining)} of {number(left.limit)} left{resets}")
    return "\n".join(lines)
