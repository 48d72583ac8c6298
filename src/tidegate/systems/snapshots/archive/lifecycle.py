"""Ageing of archive files: cold storage after `cold_after`, deletion after `delete_after`.

On S3 the storage does it by a lifecycle rule of the bucket. The rule is set, read back and compared; other rules of the
bucket stay unchanged. In a folder, this process moves files to a cold folder and deletes them. Every step can be
repeated, and two processes can run at once.
"""

import asyncio
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from sqlalchemy import delete, select

from tidegate.core.errors import InvalidSettings, ServerRefused
from tidegate.core.ids import new_id
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.archive.object_storage import StorageUnavailable, folder_of, make_durable
from tidegate.systems.snapshots.settings import ArchiveSettings
from tidegate.systems.snapshots.tables import snapshot_archives

_FILES_AT_ONCE = 100
_ROWS_AT_ONCE = 500
_CHUNK = 1024 * 1024
_LONGEST_ID = 255
_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501
_REMEDY = (
    "Allow s3:GetLifecycleConfiguration and s3:PutLifecycleConfiguration; where the storage has no such class, set "
    "snapshots.archive.cold_class to another one, or to none"
)
_files = snapshot_archives.c


class Lifecycle(Protocol):
    """Ageing of files on one kind of storage."""

    async def apply(self, today: date) -> bool:
        """Apply the rules; True if there is more to do at once."""
        ...


def lifecycle_of(settings: ArchiveSettings, url: str) -> Lifecycle | None:
    """Return the lifecycle of the archive at `url`; None if the operator has to set it up in the storage."""
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return FolderLifecycle(folder_of(url), cold_folder(settings, url), settings)
    return S3Lifecycle(url, settings) if scheme == "s3" else None


def cold_folder(settings: ArchiveSettings, url: str) -> Path:
    """Return the folder for cold files: by default beside the archive."""
    warm = folder_of(url)
    if settings.cold_url is None:
        return warm.with_name(f"{warm.name}-cold")
    cold = folder_of(settings.cold_url)
    if cold.resolve() == warm.resolve():
        raise InvalidSettings("snapshots.archive.cold_url must differ from the folder of the archive")
    return cold


def delete_rows(tx: Transaction, before: date) -> int:
    """Delete rows of files of days before `before`, in batches; return their number."""
    old = select(_files.name).where(_files.day < before).order_by(_files.day).limit(_ROWS_AT_ONCE)
    names = list(tx.execute(old).scalars())
    if names:
        tx.execute(delete(snapshot_archives).where(_files.name.in_(names)))
    return len(names)


def has_files(tx: Transaction) -> bool:
    """Return whether there are archived files."""
    return tx.execute(select(_files.name).limit(1)).first() is not None


class FolderLifecycle:
    """Moves and deletes files of a folder by the day in their names.

    A file is copied under a temporary name, compared, made durable and renamed before the original is deleted. After a
    crash it may be in both folders, which the next run repairs; it is in at least one at any time.
    """

    def __init__(self, warm: Path, cold: Path, settings: ArchiveSettings) -> None:
        self._warm, self._cold, self._settings = warm, cold, settings

    async def apply(self, today: date) -> bool:
        """See `Lifecycle`."""
        return await asyncio.to_thread(self._apply, today)

    def _apply(self, today: date) -> bool:
        # One limit for all three steps. Delete first, so that no file is copied to the cold folder
        # only to be deleted there.
        left = _FILES_AT_ONCE
        try:
            if self._settings.delete_after is not None:
                for root in (self._warm, self._cold):
                    left -= _delete(root, today - self._settings.delete_after, left)
            if (cold_age := self._settings.cold_age) is not None:
                left -= _move(self._warm, self._cold, today - cold_age, left)
        except OSError as error:
            raise StorageUnavailable(f"{self._warm}: {error.strerror}: {error.filename}") from None
        return left == 0


class S3Lifecycle:
    """Sets and checks the lifecycle rule of a bucket."""

    def __init__(self, url: str, settings: ArchiveSettings) -> None:
        parts = urlsplit(url)
        self._url, self._bucket, self._settings = url, parts.netloc, settings
        path = parts.path.strip("/")
        # Applies only to files of the archive.
        self._prefix = f"{path}/kind=" if path else "kind="
        self._id = fit_to_keep(f"tidegate archive {path}".strip(), most=_LONGEST_ID)

    async def apply(self, today: date) -> bool:
        """See `Lifecycle`. Raises `ServerRefused` if the storage does not store the rule as set."""
        del today  # the storage counts the days
        async with self._client() as client:
            present = await self._rules(client)
            if self._is_set(present):
                return False
            # S3 replaces the whole configuration, so rules of other owners are written back unchanged.
            others = [rule for rule in present if rule.get("ID") != self._id]
            await self._put(client, [*others, *self.wanted()])
            # Some compatible storages accept the call and drop what they do not support. Only reading back shows that.
            if not self._is_set(await self._rules(client)):
                what = "it did not store the lifecycle rule of the archive as set"
                raise ServerRefused(self._url, what, remedy=_REMEDY)
        return False

    async def check(self) -> bool:
        """Return whether the rule matches the settings; changes nothing."""
        async with self._client() as client:
            return self._is_set(await self._rules(client))

    def wanted(self) -> list[dict[str, Any]]:
        """Return the rule as a list, empty if there is none. S3 counts days from when a file was written."""
        settings, rule = self._settings, dict[str, Any]()
        if settings.cold_age is not None:
            # S3 counts from the upload. A file is uploaded when its history is `after` old, so that time is subtracted.
            days = (settings.cold_age - settings.after).days
            rule["Transitions"] = [{"Days": days, "StorageClass": settings.cold_class}]
        if settings.delete_after is not None:
            rule["Expiration"] = {"Days": (settings.delete_after - settings.after).days}
        if not rule:
            return []
        return [{"ID": self._id, "Filter": {"Prefix": self._prefix}, "Status": "Enabled", **rule}]

    def _is_set(self, present: Sequence[Mapping[str, Any]]) -> bool:
        ours = [_effective(rule) for rule in present if rule.get("ID") == self._id]
        return ours == [_effective(rule) for rule in self.wanted()]

    async def _rules(self, client: Any) -> list[dict[str, Any]]:
        from botocore.exceptions import ClientError

        try:
            return list((await client.get_bucket_lifecycle_configuration(Bucket=self._bucket))["Rules"])
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchLifecycleConfiguration":
                return []
            raise

    async def _put(self, client: Any, rules: Sequence[Mapping[str, Any]]) -> None:
        if rules:
            await client.put_bucket_lifecycle_configuration(
                Bucket=self._bucket, LifecycleConfiguration={"Rules": list(rules)}
            )
        else:
            await client.delete_bucket_lifecycle(Bucket=self._bucket)

    def _client(self) -> "_Client":
        return _Client(self._url)


class _Client:
    """An S3 client for the length of a block; converts its errors."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Any:
        if find_spec("aiobotocore") is None:
            raise InvalidSettings('the lifecycle of an archive on S3 needs aiobotocore: pip install "tidegate[aws]"')
        from aiobotocore.config import AioConfig
        from aiobotocore.session import get_session

        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        config = AioConfig(connect_timeout=5, read_timeout=30, retries={"max_attempts": 2, "mode": "standard"})
        self._context = get_session().create_client("s3", region_name=region, config=config)
        return await self._context.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self._context.__aexit__(kind, error, trace)
        if error is not None:
            self._raise_converted(error)

    def _raise_converted(self, error: BaseException) -> None:
        """Raise `StorageUnavailable` or `ServerRefused` for an error of the S3 client; return for any other error."""
        import aiohttp
        from botocore import exceptions

        if isinstance(error, exceptions.ClientError):
            reported = dict(error.response.get("Error", {}))
            what = fit_to_keep(f"{reported.get('Code')}: {reported.get('Message', '')}", most=300)
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            # 501: the storage has no lifecycle rules. A retry would not help.
            if status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED:
                raise StorageUnavailable(f"{self._url}: {what}", server=self._url) from None
            raise ServerRefused(self._url, what, remedy=_REMEDY) from None
        if isinstance(error, (exceptions.ConnectionError, exceptions.HTTPClientError, aiohttp.ClientError, OSError)):
            raise StorageUnavailable(f"{self._url}: {error}", server=self._url) from None
        if isinstance(error, exceptions.BotoCoreError):
            raise ServerRefused(self._url, str(error), remedy=_REMEDY) from None


def _effective(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effective part of a rule, without fields that a storage adds."""
    transitions = [(each.get("Days"), each.get("StorageClass")) for each in rule.get("Transitions", ())]
    prefix = rule.get("Filter", {}).get("Prefix", rule.get("Prefix", ""))
    expires = rule.get("Expiration", {}).get("Days")
    return {"prefix": prefix, "status": rule.get("Status"), "transitions": transitions, "expires": expires}


def _older(root: Path, before: date, most: int) -> Iterator[Path]:
    """Yield up to `most` files of days before `before`, the oldest day first."""
    days = [
        (day, folder) for folder in root.glob("kind=*/day=*") if (day := _day_of(folder)) is not None and day < before
    ]
    for _, folder in sorted(days):
        for path in sorted(folder.glob("*.parquet")):
            if most <= 0:
                return
            most -= 1
            yield path


def _day_of(folder: Path) -> date | None:
    with suppress(ValueError):
        return datetime.strptime(folder.name, "day=%Y-%m-%d").replace(tzinfo=UTC).date()
    return None


def _delete(root: Path, before: date, most: int) -> int:
    deleted = 0
    for path in _older(root, before, most):
        _remove(path, root)
        deleted += 1
    return deleted


def _move(warm: Path, cold: Path, before: date, most: int) -> int:
    moved = 0
    for path in _older(warm, before, most):
        target = cold / path.relative_to(warm)
        with suppress(FileNotFoundError):  # moved by another process
            if target.exists() and target.samefile(path):  # the same folder under two names
                raise InvalidSettings(f"{cold} and {warm} are the same folder: set another snapshots.archive.cold_url")
            _copy(path, target)
            make_durable(target, cold)
            _remove(path, warm)
        moved += 1
    return moved


def _copy(path: Path, target: Path) -> None:
    """Copy a file atomically."""
    with path.open("rb") as source:
        for folder in (*reversed(target.parent.parents), target.parent):  # `parents=True` would not set the mode
            folder.mkdir(mode=0o700, exist_ok=True)
        # Written under another name and renamed at the end: a crash leaves no half file under the final name.
        partial = target.with_name(f".{new_id()}.part")
        try:
            # Hash while copying, so that the original is read once.
            written = hashlib.sha256()
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink:
                while chunk := source.read(_CHUNK):
                    written.update(chunk)
                    sink.write(chunk)
                sink.flush()
                os.fsync(sink.fileno())
            # Read back what is on disk, since the original is deleted next.
            with partial.open("rb") as copied:
                if hashlib.file_digest(copied, "sha256").digest() != written.digest():
                    raise OSError(0, "the copy differs from the original", str(partial))
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _remove(path: Path, root: Path) -> None:
    """Delete a file, and its parent folders that become empty."""
    path.unlink(missing_ok=True)
    for parent in path.parents:
        if parent == root:
            break
        # A folder that is not empty stays.
        with suppress(OSError):
            parent.rmdir()
