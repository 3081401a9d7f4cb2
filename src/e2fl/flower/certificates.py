"""Makes the keys of a federation: a certificate authority, the server's certificate, and a key for each node.

A node's private key is its identity: keep each one on its own machine and nowhere else.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from e2fl.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
except ImportError as error:
    raise ConfigError("keys need the Flower extra: pip install 'e2fl[flower]'") from error

VALID = datetime.timedelta(days=365)
PEM = serialization.Encoding.PEM
LOOPBACK = ("127.0.0.1", "::1", "localhost")  # how Flower's own processes on the server reach it


def make_keys(folder: Path, nodes: int, hosts: Sequence[str]) -> list[Path]:
    """Write ca.crt, server.crt, server.key and, for each node, node-N and node-N.pub.

    hosts: the names and addresses by which nodes reach the server; loopback addresses are added. The key of the
    authority is not stored: for another host or after a year, make new keys.
    """
    if nodes < 1 or not hosts:
        raise ConfigError("keys need at least one node and one host: pass --nodes and --host")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty, and keys are never overwritten; choose another folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority = ec.generate_private_key(ec.SECP384R1())
    name = _name("e2fl certificate authority")
    root = _certificate(name, name, authority, authority, None)
    server = ec.generate_private_key(ec.SECP384R1())
    issued = _certificate(_name(hosts[0]), name, server, authority, list(dict.fromkeys((*hosts, *LOOPBACK))))
    made = [
        _write(folder / "ca.crt", root.public_bytes(PEM), secret=False),
        _write(folder / "server.crt", issued.public_bytes(PEM), secret=False),
        _write(folder / "server.key", _private(server, serialization.PrivateFormat.PKCS8), secret=True),
    ]
    for node in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        made.append(_write(folder / f"node-{node}", _private(key, serialization.PrivateFormat.OpenSSH), secret=True))
        made.append(_write(folder / f"node-{node}.pub", public + b"\n", secret=False))
    return made


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str] | None,
) -> x509.Certificate:
    """Return a certificate for these hosts; for an authority if hosts is None."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=hosts is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=hosts is None,
                crl_sign=hosts is None,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if hosts is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return builder.sign(signer, hashes.SHA384())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(PEM, form, serialization.NoEncryption())


def _write(path: Path, raw: bytes, *, secret: bool) -> Path:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(raw)
    return path
