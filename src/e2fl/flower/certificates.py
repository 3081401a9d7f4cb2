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
AUTHORITY = "e2fl certificate authority"
ENCIPHERMENT = ("key_encipherment", "data_encipherment", "encipher_only", "decipher_only")
UNUSED = (*ENCIPHERMENT, "content_commitment", "key_agreement")  # of the uses of a key


def make_keys(folder: Path, nodes: int, hosts: Sequence[str]) -> list[Path]:
    """Write ca.crt, server.crt, server.key and, for each node, node-N and node-N.pub.

    hosts: the names and addresses by which nodes reach the server; loopback addresses are added.
    The key of the authority is not stored: for another host or after a year, make new keys.
    """
    if nodes < 1 or not hosts:
        raise ConfigError("keys need at least one node and one host: pass --nodes and --host")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty, and keys are never overwritten; choose --out")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority, server, *node_keys = (
        ec.generate_private_key(ec.SECP384R1()) for _ in range(nodes + 2)
    )
    names = [_host(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    alternative = x509.SubjectAlternativeName(names)
    contents = {
        "ca.crt": _certificate(AUTHORITY, authority, authority, None),
        "server.crt": _certificate(hosts[0][:64], server, authority, alternative),
        "server.key": _private(server, PrivateFormat.PKCS8),
    }
    for number, key in enumerate(node_keys):
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        contents[f"node-{number}"] = _private(key, PrivateFormat.OpenSSH)
        contents[f"node-{number}.pub"] = public + b"\n"
    for name, raw in contents.items():
        mode = 0o644 if name.endswith((".crt", ".pub")) else 0o600
        with os.fdopen(
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
        ) as f:
            f.write(raw)
    return [folder / name for name in contents]


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    hosts: x509.SubjectAlternativeName | None,
) -> bytes:
    """Return a certificate for these hosts; for an authority if hosts is None."""
    now = datetime.datetime.now(datetime.UTC)
    signs = hosts is None
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, **dict.fromkeys(UNUSED, False)
    )
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(AUTHORITY))
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
        builder = builder.add_extension(hosts, critical=False)
    return builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())
