"""What a federation needs before it runs: an app for `flwr run`, certificates, and node keys.

A node's private key is its identity: keep each one on its own machine and nowhere else.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from e2fl.config.experiment import Experiment
from e2fl.errors import ConfigError
from e2fl.flower.run_config import RunConfig
from e2fl.version import __version__

PACKAGE = "federation"
FILES = {  # by file in `app`, where the exported app has it
    "pyproject.toml": "pyproject.toml",
    "server_app.py": f"{PACKAGE}/server_app.py",
    "client_app.py": f"{PACKAGE}/client_app.py",
    "README.md": "README.md",
    "gitignore": ".gitignore",
} | {
    f"{script}.sh": f"scripts/{script}"
    for script in ("environment", "superlink", "register", "supernode", "run", "simulate")
}
AUTHORITY = "e2fl certificate authority"
LOOPBACK = ("127.0.0.1", "::1", "localhost")  # how Flower's own processes on the server reach it


def export(experiment: Experiment, out: Path) -> list[Path]:
    """Write the app to a new folder; return the files."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists; choose another folder with --out")
    words = "".join(char if char.isalnum() else "-" for char in experiment.name.lower())
    name = words.strip("-") or "experiment"
    settings = vars(RunConfig(out=f"runs/{name}", pins="required"))
    values = {
        "@name@": name,
        "@version@": __version__,
        "@clients@": str(len(experiment.build_data().population)),
        "@config@": tomli_w.dumps({key.replace("_", "-"): v for key, v in settings.items()}),
    }
    contents = {
        f"{PACKAGE}/experiment.toml": experiment.to_toml(),
        f"{PACKAGE}/__init__.py": "",
    }
    for source, target in FILES.items():
        text = (files("e2fl.flower") / "app" / f"{source}.txt").read_text(encoding="utf-8")
        for word, value in values.items():
            text = text.replace(word, value)
        contents[target] = text
    for target, text in contents.items():
        path = out / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if target.startswith("scripts/") else 0o644)
    return [out / target for target in contents]


def make_keys(folder: Path, nodes: int, hosts: Sequence[str]) -> list[Path]:
    """Write ca.crt, server.crt, server.key and, for each node, node-N and node-N.pub.

    hosts: the names and addresses by which nodes reach the server; loopback addresses are added.
    The key of the authority is not stored: for another host or after a year, make new keys.
    """
    if nodes < 1:
        raise ConfigError("keys need at least one node: pass --nodes")
    if folder.exists():
        raise ConfigError(f"{folder} exists, and keys are never overwritten; choose --out")
    folder.mkdir(mode=0o700, parents=True)
    authority, server, *node_keys = (generate_private_key(SECP384R1()) for _ in range(nodes + 2))
    contents = {
        "ca.crt": _certificate(AUTHORITY, authority, authority, []),
        "server.crt": _certificate(hosts[0][:64], server, authority, [*hosts, *LOOPBACK]),
        "server.key": _private(server, PrivateFormat.PKCS8),
    }
    for node, key in enumerate(node_keys):
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        contents[f"node-{node}"] = _private(key, PrivateFormat.OpenSSH)
        contents[f"node-{node}.pub"] = public + b"\n"
    for name, raw in contents.items():
        (folder / name).touch(0o644 if name.endswith((".crt", ".pub")) else 0o600)
        (folder / name).write_bytes(raw)
    return [folder / name for name in contents]


def _certificate(
    subject: str,
    key: EllipticCurvePrivateKey,
    authority: EllipticCurvePrivateKey,
    hosts: Sequence[str],
) -> bytes:
    """Return a certificate for these hosts; without hosts, for the authority."""
    now = datetime.datetime.now(datetime.UTC)
    signs, public, signer = not hosts, key.public_key(), authority.public_key()
    uses = [True, *[False] * 4, signs, signs, False, False]  # signatures, then of certificates
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
        .add_extension(x509.KeyUsage(*uses), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: EllipticCurvePrivateKey, form: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())
