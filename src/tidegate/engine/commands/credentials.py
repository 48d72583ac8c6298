"""`tidegate credentials`: whose tokens and apps may be used. No secret is an argument, and none is ever shown."""

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

app = typer.Typer(no_args_is_help=True, help="Whose tokens and apps may be used.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_API_URL = typer.Option(None, help="GitHub's address; that of GitHub Enterprise, or of a simulator.")
_NONE_YET = "There are no credentials. Add one: tidegate credentials add"


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was said on the command line; no secret."""

    name: str | None
    owner: str | None
    user_id: str | None
    app_id: int | None
    installation_id: int | None
    check: bool


@app.command()
def add(
    name: str | None = typer.Argument(None, help="What to call it; the login of its account unless given."),
    *,
    owner: str | None = typer.Option(None, help="Who answers for it: a person or a team. The login unless given."),
    user: str | None = typer.Option(None, help="Serve only the runs of this user; else those of everybody."),
    from_env: str | None = typer.Option(None, help="The name of an environment variable that holds the secret."),
    from_file: Path | None = typer.Option(None, help="A file that holds the secret."),
    app_id: int | None = typer.Option(None, help="The number of a GitHub App; the secret is then its private key."),
    installation_id: int | None = typer.Option(None, help="The number of the app's installation."),
    no_check: bool = typer.Option(False, "--no-check", help="Store it without asking GitHub whose it is."),
    source: str | None = SOURCE,
    api_url: str | None = _API_URL,
    as_json: bool = _JSON,
) -> None:
    """Store a token, or the private key of a GitHub App. The same name again gets the new secret.

    The secret is asked for without being shown, or read from standard input, a variable or a file. It is encrypted
    with the key in TIDEGATE_CREDENTIALS_KEY, else in credentials.key in the data folder.
    """
    _refuse_secret(name)
    if (app_id is None) != (installation_id is None):
        raise InvalidArgument("app", app_id or installation_id, "an app needs both --app-id and --installation-id")
    plugin = plugin_for(load_settings(), source, api_url)
    given = _Given(
        name=name,
        owner=owner,
        user_id=None if user is None else plugin.user(user),
        app_id=app_id,
        installation_id=installation_id,
        check=not no_check and plugin.checks_tokens,
    )
    if no_check and owner is None:
        raise InvalidArgument(
            "owner", "", "with --no-check nothing is asked about it, so say it: --owner NAME, a person or a team"
        )
    added = run(_add(plugin, given, _read_secret(from_env, from_file, is_key=app_id is not None)))
    if as_json:
        typer.echo(msgspec.json.encode({"credential": added}))
        return
    typer.echo(f"Stored {added.name}: {_described(added)}, owned by {added.owner}, serves {_served(added)}.")
    if no_check:
        typer.echo(f"The upstream was not asked. Test it before you rely on it: tidegate credentials test {added.name}")


@app.command("list")
def list_(
    *,
    source: str | None = typer.Option(None, "--source", help="Only those of this source."),
    as_json: bool = _JSON,
) -> None:
    """Show the credentials of all sources: account, users they serve, and whether they are valid. Never a secret."""
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
    name: str = typer.Argument(help="As `list` shows it."), *, source: str | None = SOURCE, as_json: bool = _JSON
) -> None:
    """Delete a credential, so that no process uses it. Calls under way end. It is not revoked at the upstream."""
    removed = run(_remove(plugin_for(load_settings(), source), name))
    if as_json:
        typer.echo(msgspec.json.encode({"removed": removed}))
    else:
        typer.echo(f"Removed {removed.name}: {_described(removed)}, served {_served(removed)}.")


@app.command("test")
def probe(
    names: list[str] = typer.Argument(None, help="As `list` shows them; all of them unless given."),
    *,
    source: str | None = SOURCE,
    api_url: str | None = _API_URL,
    as_json: bool = _JSON,
) -> None:
    """Ask the upstream whether credentials are good, and what is left. Exit 1 if one is not.

    One that was refused before serves again if it is.
    """
    plugin = plugin_for(load_settings(), source, api_url)
    if not plugin.checks_tokens:
        raise InvalidArgument("source", plugin.name, "cannot be asked about credentials; calls show whether they work")
    checks = run(_test(plugin, names or []))
    if as_json:
        typer.echo(msgspec.json.encode({"checks": checks}))
    elif not checks:
        typer.echo(_NONE_YET)
    else:
        for check in checks:
            typer.echo(_told(check, datetime.now(UTC)))
    if not all(check.is_valid for check in checks):
        raise typer.Exit(1)


@app.command("rotate-key")
def rotate_key(*, as_json: bool = _JSON) -> None:
    """Encrypt all secrets with a new key.

    Where the keys are in TIDEGATE_CREDENTIALS_KEY, put the new one first and a comma behind it before you run this, and
    take the old one out afterwards.
    """
    done = run(_rotate(load_settings()))
    if as_json:
        typer.echo(msgspec.json.encode(done))
        return
    typer.echo(f"{counted(done.encrypted_anew, 'secret')} encrypted anew with the key {done.key_id} of {done.place}.")


async def _add(plugin: SourcePlugin, given: _Given, secret: str) -> Credential:
    from tidegate.engine.collection import open_credentials

    async with open_credentials(plugin.settings, plugin.name) as book:
        if given.app_id is None or given.installation_id is None:
            owner = given.owner if given.check else given.owner or plugin.name
            return await book.add_token(secret, owner=owner, user_id=given.user_id, name=given.name, check=given.check)
        if given.owner is None:
            raise InvalidArgument("owner", "", "must be given for an app: say who answers for it with --owner")
        return await book.add_installation(
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

    async with open_credentials(plugin.settings, plugin.name) as book:
        return await book.remove(name)


async def _test(plugin: SourcePlugin, names: Sequence[str]) -> list[CredentialCheck]:
    from tidegate.engine.collection import open_credentials
    from tidegate.engine.credentials import CredentialKind

    async with open_credentials(plugin.settings, plugin.name) as book:
        stored = [one for one in await book.list() if one.kind is not CredentialKind.ENVIRONMENT]
        if names:
            return [await book.test(name) for name in dict.fromkeys(names)]
        return [await _test_one(book, one.name) for one in stored if one.audience == book.audience]


async def _test_one(book: CredentialManager, name: str) -> CredentialCheck:
    """Of many, one that cannot be tested does not keep the others from it."""
    from tidegate.engine.credentials import CredentialCheck

    try:
        return await book.test(name)
    except TidegateError as error:
        account = (await book.get(name)).account
        return CredentialCheck(name=name, is_valid=None, reason=redact_text(str(error)), account=account)


async def _rotate(settings: Settings) -> Rotation:
    from tidegate.engine.collection import open_credentials

    async with open_credentials(settings, plugin_for(settings, None).name) as book:
        return await book.rotate_key()


def _refuse_secret(name: str | None) -> None:
    """A token in place of a name is in the shell's history by now; it is not repeated here."""
    if name is not None and redact_text(name) != name:
        raise InvalidArgument(
            "name",
            "…",
            "looks like a token, and others can see it where it stands. Revoke it, and enter a new one here",
        )


def _read_secret(variable: str | None, file: Path | None, *, is_key: bool) -> str:
    if variable is not None and file is not None:
        raise InvalidArgument("from_file", str(file), "say either --from-env or --from-file")
    if variable is not None:
        return _from_environment(variable)
    if file is not None:
        return _from_file(file)
    if not sys.stdin.isatty():
        return sys.stdin.read()
    if is_key:
        raise InvalidArgument("private key", "", "has many lines: say --from-file, or give it on standard input")
    return getpass("Token (not shown): ")  # unlike typer's prompt, it shows nothing from before the question on


def _from_environment(variable: str) -> str:
    _refuse_secret(variable)
    value = os.environ.get(variable)
    if not value:
        raise InvalidArgument("from_env", variable, "there is no such environment variable, or it is empty")
    return value


def _from_file(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError as error:
        raise InvalidArgument("from_file", str(file), error.strerror or "cannot be read") from None
    except ValueError:
        raise InvalidArgument("from_file", str(file), "is no text in ASCII") from None


def _print_table(credentials: Sequence[Credential], default: str, usual: str) -> None:
    """A line for each; where it is sent only where one is for another address than the `usual` one."""
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table

    now = datetime.now(UTC)
    elsewhere = ["sent to"] if any(one.audience not in (usual, one.source) for one in credentials) else []
    sources = ["source"] if any(one.source != default for one in credentials) else []
    columns = (*sources, "name", "what", "owner", "serves", *elsewhere, "checked", "state")
    table = Table(*columns, box=None, pad_edge=False)
    for one in credentials:
        checked = "never" if one.checked_at is None else clock(one.checked_at, now)
        where = [one.audience] if elsewhere else []
        of = [one.source] if sources else []
        row = (*of, one.name, _described(one), one.owner, _served(one), *where, checked, _state(one, now))
        table.add_row(*(escape(text) for text in row))
    print_table(table)


def _described(one: Credential) -> str:
    from tidegate.engine.credentials import CredentialKind

    match one.kind:
        case CredentialKind.INSTALLATION:
            return f"installation {one.details['installation_id']} of app {one.details['app_id']}"
        case CredentialKind.ENVIRONMENT:
            return f"token of {one.account}, not stored"
        case CredentialKind.TOKEN:
            return f"token of {one.account}"


def _served(one: Credential) -> str:
    return "everybody" if one.user_id is None else f"the user {one.user_id}"


def _state(one: Credential, now: datetime) -> str:
    from tidegate.engine.credentials import CredentialState

    if one.state is CredentialState.VALID:
        return "valid"
    since = "" if one.invalid_at is None else f" since {clock(one.invalid_at, now)}"
    return f"invalid{since}: {one.invalid_reason}"


def _told(check: CredentialCheck, now: datetime) -> str:
    if not check.is_valid:
        return f"{check.name}: {'not tested' if check.is_valid is None else 'invalid'}: {check.reason}"
    lines = [f"{check.name}: valid, {check.account}"]
    if check.scopes is not None:
        lines.append(f"  scopes: {', '.join(check.scopes) or 'none: public things only'}")
    if check.expires_at is not None:
        lines.append(f"  ends: {clock(check.expires_at, now)}")
    for bucket, left in check.left.items():
        resets = f", window ends {clock(left.resets_at, now)}" if left.remaining < left.limit else ""
        lines.append(f"  {bucket}: {number(left.remaining)} of {number(left.limit)} left{resets}")
    return "\n".join(lines)
