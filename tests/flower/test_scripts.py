"""What `e2fl flower` writes: the app, its scripts and its keys."""

import asyncio
import os
import re
import socket
import ssl
import stat
import subprocess
import tomllib

import pytest

from e2fl.cli import main
from e2fl.errors import ConfigError
from e2fl.flower.export import export
from e2fl.flower.run_config import RunConfig
from e2fl.flower.superlink import LocalControl
from tests.flower.machines import port


def test_export_writes_an_app_that_flower_accepts(tmp_path):
    from flwr.common.config import validate_config

    out = tmp_path / "app"
    words = ["flower", "export", "three_nodes", "--set", "rounds=2", "--out", str(out)]
    assert main(words) == 0
    config = tomllib.loads((out / "pyproject.toml").read_text())
    assert validate_config(config, check_module=True, project_dir=out) == (True, [], [])
    settings = config["tool"]["flwr"]["app"]["config"]
    assert settings["out"] == "runs/three-nodes"
    with pytest.raises(ConfigError, match="pins are required"):
        _ = RunConfig.parse(settings).pinned  # no node gets a client id by being the first
    assert "rounds = 2" in (out / "federation/experiment.toml").read_text()
    for script in (out / "scripts").iterdir():
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert "--insecure" not in script.read_text() or script.name == "simulate"
        assert not re.search(r"@\w+@", script.read_text())
    server = (out / "scripts/superlink").read_text()  # that only this machine controls
    assert "exec e2fl-superlink " in server
    assert "--enable-supernode-auth" in server
    assert main(words) == 2


def test_register_gives_up_if_there_is_no_server(toy, tmp_path):
    done = _script(toy, tmp_path, "register", WAIT="1")
    assert done.returncode == 1
    assert "after 1 seconds; check that it is running, and see superlink.log" in done.stderr


def test_simulate_uses_only_its_own_server(toy, tmp_path):
    done = _script(toy, tmp_path / "stopped", "simulate", WAIT="30")
    assert done.returncode == 1
    assert done.stderr == "the server stopped right after it was started; see simulation.log\n"
    assert (tmp_path / "stopped/app/simulation.log").read_text() == "no space\n"
    with socket.create_server(("127.0.0.1", 0)) as another:
        used = str(another.getsockname()[1])
        done = _script(toy, tmp_path / "running", "simulate", PORT=used)
    assert done.returncode == 1
    assert "is in use; choose another one" in done.stderr


def _script(experiment, folder, *words, **environment):
    """Export the app and run one of its scripts; Flower's server stops at once."""
    if not (folder / "app").exists():
        export(experiment, folder / "app")
    commands = folder / "bin"
    commands.mkdir(parents=True, exist_ok=True)
    stopped = "echo no space; exit 1"
    for command, text in (("flower-superlink", stopped), ("flwr", "exit 1")):
        (commands / command).write_text(f"#!/bin/sh\n{text}\n")
        (commands / command).chmod(0o755)
    path = f"{commands}:{os.environ['PATH']}"
    values = {"PATH": path, "HOST": "127.0.0.1", "PORT": str(port()), **environment}
    name, *arguments = words
    return subprocess.run(
        [str(folder / "app/scripts" / name), *arguments],
        env=values,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_keys_are_secret_and_never_overwritten(toy, tmp_path):
    """The server's certificate is valid for its hosts and for loopback, and for no other.

    With LISTEN=0.0.0.0, Flower's own processes reach the server as 127.0.0.1.
    """
    folder, keys = tmp_path / "made", tmp_path / "made/app/keys"
    words = ("keys", "2", "10.0.0.7", "fd00::7", "localhost")
    assert _script(toy, folder, *words, HOST="example.org").stderr == ""
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()}
    public = ("ca.crt", "server.crt", "node-0.pub", "node-1.pub")
    secret = ("server.key", "node-0", "node-1")
    assert modes == dict.fromkeys(public, 0o644) | dict.fromkeys(secret, 0o600)
    for host in ("example.org", "10.0.0.7", "fd00::7", "127.0.0.1", "localhost", "::1"):
        _handshake(keys, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(keys, "example.net")
    before = (keys / "server.key").read_bytes()
    again = _script(toy, folder, *words, HOST="example.org")
    assert again.returncode == 1
    assert "keys are never overwritten" in again.stderr
    assert (keys / "server.key").read_bytes() == before


def _handshake(keys, host):
    """Do the TLS handshake as a node that knows the server as `host`."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(keys / "server.crt", keys / "server.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(up, down, server_side=True)
    trusting = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    node = trusting.wrap_bio(down, up, server_hostname=host)
    unfinished = [node, server]
    while unfinished:
        for side in list(unfinished):
            try:
                side.do_handshake()
                unfinished.remove(side)
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize(
    ("address", "path", "status"),
    [
        ("127.0.0.1", "/v1/control/StartRun", 200),
        ("::ffff:127.0.0.1", "/v1/control/StartRun", 200),
        ("10.0.0.7", "/v1/fleet/PullMessages", 200),
        ("10.0.0.7", "/health", 200),
        ("10.0.0.7", "/v1/control/StartRun", 403),
        ("10.0.0.7", "/v1/runtime/PushMessages", 403),
        ("10.0.0.7", "/v1/fleet/../control/StartRun", 200),  # the router knows no such path
        ("10.0.0.7", "/docs", 403),
        ("fe80::1", "/v1/control/StartRun", 403),
        (None, "/v1/control/StartRun", 403),
        ("unix", "/v1/control/StartRun", 403),
        ("0.0.0.0", "/v1/control/StartRun", 403),
    ],
)
def test_other_machines_reach_only_what_nodes_need(address, path, status):
    """Whoever reaches the port could otherwise submit an app, and so run code on all nodes."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    async def send(message):
        sent.append(message)

    client = None if address is None else (address, 1234)
    scope = {"type": "http", "path": path, "client": client}
    asyncio.run(LocalControl(app)(scope, None, send))
    assert sent[0]["status"] == status


def test_flowers_server_asks_the_middleware_first():
    """The interfaces are where the middleware expects them in this version of Flower."""
    from flwr.superlink import extensions, main
    from starlette.middleware import Middleware

    before = extensions.get_middleware
    try:
        extensions.get_middleware = lambda: (Middleware(LocalControl),)
        app = main.create_app()
    finally:
        extensions.get_middleware = before
    assert app.user_middleware[0].cls is LocalControl
    assert (main.control_router.prefix, main.fleet_router.prefix) == ("/v1/control", "/v1/fleet")
