"""Makes the keys of a federation: a certificate authority, the server's certificate, node keys.

A node's private key is its identity: keep each one on its own machine and nowhere else.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from e2fl.errors import ConfigError

VALID = datetime.timedelta(days=365)
LOOPBACK = ("127.0.0.1", "::1", "localhost")  # how Flower's own processes on the server reach it
USAGES = (
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


def make_keys(folder: Path, nodes: int, hosts: Sequence[str]) -> list[Path]:
    """Write ca.crt, server.crt, server.key and, for each node, node-N and node-N.pub.

    hosts: the names and addresses by which nodes reach the server; loopback addresses are added.
    The key of the authority is not stored: for another host or after a year, make new keys.
    """
    if nodes < 1 or not hosts:
        raise ConfigError("keys need at least one node and one host: pass --nodes and --host")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is not empty, and keys are never overwritten; "
            "choose another folder with --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority, server = _new_key(), _new_key()
    name = _name("e2fl certificate authority")
    root = _certificate(name, name, authority, authority, None)
    named = list(dict.fromkeys((*hosts, *LOOPBACK)))
    issued = _certificate(_name(hosts[0]), name, server, authority, named)
    written = [
        _write(folder / "ca.crt", root.public_bytes(Encoding.PEM)),
        _write(folder / "server.crt", issued.public_bytes(Encoding.PEM)),
        _write(folder / "server.key", _private(server, PrivateFormat.PKCS8), mode=0o600),
    ]
    for node in range(nodes):
        key = _new_key()
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        private = _private(key, PrivateFormat.OpenSSH)
        written.append(_write(folder / f"node-{node}", private, mode=0o600))
        written.append(_write(folder / f"node-{node}.pub", public + b"\n"))
    return written


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str] | None,
) -> x509.Certificate:
    """Return a certificate for these hosts; for an authority if hosts is None."""
    now = datetime.datetime.now(datetime.UTC)
    signs = hosts is None
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        **dict.fromkeys(USAGES, False),
    )
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signed_by, critical=False)
        .add_extension(usage, critical=True)
    )
    if hosts is not None:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA384())


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _write(path: Path, raw: bytes, mode: int = 0o644) -> Path:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(raw)
    return path
