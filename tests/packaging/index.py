"""A package index of our own: over https, with a certificate that only its own authority vouches for."""

import base64
import hashlib
import ssl
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A wheel with one empty module."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    place = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return place


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def pin(wheel: Path) -> str:
    """The line of a file of pinned requirements."""
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


class Index:
    """Where it listens, whom to trust, and which programs asked it."""

    def __init__(self, url: str, authority: Path, agents: set[str]) -> None:
        self.url, self.authority, self.agents = url, authority, agents


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, agents: set[str], *arguments: Any, **options: Any) -> None:
        self._agents = agents
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        self._agents.add(self.headers.get("User-Agent", "").partition("/")[0])
        super().do_GET()

    def log_message(self, *_arguments: Any) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride]


@contextmanager
def served(folder: Path, wheel: Path) -> Generator[Index]:
    """An index with one wheel, until the end of the block."""
    simple = folder / "simple" / wheel.name.split("-")[0]
    simple.mkdir(parents=True)
    wheel.rename(simple / wheel.name)
    (simple / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    authority, chain = _certificates(folder)
    agents = set[str]()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, agents, directory=str(folder)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Index(f"https://127.0.0.1:{server.server_port}/simple/", authority, agents)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _certificates(folder: Path) -> tuple[Path, Path]:
    """The certificate of an authority, and the key with the certificate of a server that it signed."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of the tests")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])

    def begun(name: x509.Name, of: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .issuer_name(issuer)
            .subject_name(name)
            .public_key(of.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(of.public_key()), critical=False)
        )

    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    root = (
        begun(issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        begun(subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(known, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    authority, chain = folder / "authority.pem", folder / "server.pem"
    authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(encoded + leaf.public_bytes(serialization.Encoding.PEM))
    return authority, chain
