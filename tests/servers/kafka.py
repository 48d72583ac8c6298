"""A real Apache Kafka: one broker that is its own controller, from the jars of Maven Central, with the machine's Java.

It is started when the first test needs it, once per test process. Every test has topics of its own, by a prefix.
"""

import fcntl
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path

import psutil
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest
from pydantic import SecretStr

from tests.servers.guarded import GuardedServer, new_folder
from tests.servers.ports import free_port
from tests.servers.registry import record_used, skip_or_fail
from tidegate.systems.snapshots.settings import KafkaSettings

_NAME = "Kafka"
_HERE = Path(__file__).parent
_CACHE = _HERE.parent.parent / ".kafka"
_READY = "Kafka Server started"
_CLUSTER_ID = "dGlkZWdhdGUtdGVzdHMtMQ"
USER, PASSWORD = "tidegate", "correct horse battery staple"

TOPIC, GROUP = 2, 3
READ, WRITE = 3, 4
_PREFIXED, _ALL, _DENY, _ALLOW = 4, 2, 2, 3
"""Numbers of the protocol: types of resources, operations, patterns of names, permissions."""

_JAVA = [
    *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
]


class ServerMissing(Exception):
    """This machine cannot run it; the message says why and what to do."""


class Broker:
    """One node, on ports of the loopback interface that it keeps when it is started again."""

    def __init__(self, jars: Path) -> None:
        self._folder = new_folder(None)
        self.port, self._sasl_port, controller = free_port(), free_port(), free_port()
        self.wired_port, self.wire_at = free_port(), free_port()
        """For those who put a wire in between: it is at `wire_at`, where the broker says that it is, and leads here."""
        self._command = [*_JAVA, "-cp", f"{jars}/*", "kafka.Kafka", str(self._folder / "server.properties")]
        data = self._folder / "data"
        wired = {"WIRED": (self.wired_port, self.wire_at)}
        properties = _properties(data, {"PLAIN": self.port, "PROVEN": self._sasl_port}, controller, wired)
        (self._folder / "server.properties").write_text(properties)
        shutil.copytree(_formatted(jars), data)
        # All of them are kept: a guard that nobody holds removes the folder.
        self._servers = [self._start()]

    def settings(self) -> KafkaSettings:
        """How a test reaches it, with topics and groups that no other test has."""
        return KafkaSettings(
            servers=f"127.0.0.1:{self.port}",
            replication=1,
            prefix=f"t{secrets.token_hex(4)}.",
            session=timedelta(seconds=1),
        )

    def settings_with_password(self, password: str) -> KafkaSettings:
        """The address for clients with a password."""
        proof = {"security": "SASL_PLAINTEXT", "mechanism": "PLAIN", "user": USER, "password": SecretStr(password)}
        return self.settings().model_copy(update={"servers": f"127.0.0.1:{self._sasl_port}", **proof})

    async def forget(self, settings: KafkaSettings) -> None:
        """Delete the topics of these settings: the fewer there are, the sooner it is back after a crash."""
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.servers)
        await admin.start()
        try:
            await admin.delete_topics([each for each in await admin.list_topics() if each.startswith(settings.prefix)])
        finally:
            await admin.close()

    async def deny(self, settings: KafkaSettings, resource: int, operation: int) -> None:
        """Deny one operation on the topics or groups of these settings to the user with a password."""
        # Once there is a rule about a resource, everything is denied that no rule allows.
        await self._change(CreateAclsRequest, settings, resource, _ALL, _ALLOW)
        await self._change(CreateAclsRequest, settings, resource, operation, _DENY)

    async def allow(self, settings: KafkaSettings, resource: int, operation: int) -> None:
        """Allow again what was denied."""
        await self._change(DeleteAclsRequest, settings, resource, operation, _DENY)

    async def _change(
        self,
        request: type[CreateAclsRequest | DeleteAclsRequest],
        settings: KafkaSettings,
        resource: int,
        operation: int,
        permission: int,
    ) -> None:
        """As an administrator: those who need no password may do everything."""
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{self.port}")
        await admin.start()
        try:
            rule = request(resource, settings.prefix, _PREFIXED, f"User:{USER}", "*", operation, permission)
            answer = str(await admin._send_request(rule))  # pyright: ignore[reportPrivateUsage] - it has no method
            assert "error_code=0" in answer, answer
        finally:
            await admin.close()

    @property
    def runs(self) -> bool:
        """Whether the broker is there."""
        return any(child.status() != psutil.STATUS_ZOMBIE for child in psutil.Process(self._servers[-1].pid).children())

    def kill(self) -> None:
        """End it at once; its folder stays."""
        for child in psutil.Process(self._servers[-1].pid).children():
            child.kill()
            psutil.wait_procs([child], timeout=0.1)

    def start_again(self) -> None:
        """On what it had written, at the same ports. Does nothing while it runs."""
        if not self.runs:
            self._servers.append(self._start())

    def _start(self) -> GuardedServer:
        return GuardedServer(self._folder, self._command, ready=_READY, signal="KILL", user=None)


def broker() -> Broker:
    """The broker of this test process, started if need be; the test is skipped (or fails) when there can be none."""
    try:
        found = _broker()
    except ServerMissing as missing:
        skip_or_fail(_NAME, str(missing))
    found.start_again()
    return found


@cache
def _broker() -> Broker:
    jars = _jars()
    started = Broker(jars)
    record_used(_NAME, jars.parent.name)
    return started


@cache
def _jars() -> Path:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise ServerMissing(f"there is no {program}: make services")
    _CACHE.mkdir(exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:  # one test process fetches them, the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetched = subprocess.run(["sh", str(_HERE / "kafka.sh")], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        raise ServerMissing(f"Maven could not fetch the broker: {(fetched.stderr or fetched.stdout).strip()[-300:]}")
    return Path(fetched.stdout.strip()).resolve()


def _formatted(jars: Path) -> Path:
    """An empty storage folder to copy: making one takes as long as a start of Java."""
    template = jars.parent / "formatted"
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            folder = new_folder(None)
            ports = {"PLAIN": 9092, "PROVEN": 9093}
            (folder / "server.properties").write_text(_properties(folder / "data", ports, 9094, {}))
            command = [*_JAVA, "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format", "--cluster-id", _CLUSTER_ID]
            command += ["--config", str(folder / "server.properties")]
            subprocess.run(command, check=True, capture_output=True)
            shutil.copytree(folder / "data", template)
            shutil.rmtree(folder)
    return template


def _properties(data: Path, ports: Mapping[str, int], controller: int, wired: Mapping[str, tuple[int, int]]) -> str:
    """`wired`: where it listens, and where it says that it does."""
    listening = {**ports, **{name: port for name, (port, _) in wired.items()}}
    said = {**ports, **{name: port for name, (_, port) in wired.items()}}
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": _addresses({**listening, "CONTROLLER": controller}),
        "advertised.listeners": _addresses(said),
        "listener.security.protocol.map": (
            "PLAIN:PLAINTEXT,WIRED:PLAINTEXT,PROVEN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAIN",
        "listener.name.proven.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.proven.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        # A member is seated at once, and a dead one is noticed soon.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        # One that was killed is let in again soon.
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        "log.segment.delete.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "2097152",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
