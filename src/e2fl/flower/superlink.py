"""Flower's server, of which other machines reach only what nodes need.

Flower's SuperLink has one port for three interfaces: nodes use the Fleet interface and must have a
registered key; the Control and Runtime interfaces start runs, and so run code on all nodes. Flower
protects these with accounts in its commercial edition only. Here they answer this machine alone.
"""

import ipaddress
import sys
from typing import Any

from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

FOR_NODES = ("/v1/fleet/", "/health")  # what other machines may reach


class LocalControl:
    """Middleware that lets only this machine start, list and stop runs."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        public = scope["type"] == "lifespan" or str(scope.get("path", "")).startswith(FOR_NODES)
        if public or is_loopback(scope.get("client")):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            text = "runs are started on the server itself; see docs/flower.md of e2fl\n"
            await PlainTextResponse(text, status_code=403)(scope, receive, send)


def is_loopback(client: Any) -> bool:
    """Return whether a request comes from this machine; client: its address and port."""
    try:
        address = ipaddress.ip_address(client[0])
    except (TypeError, ValueError, IndexError):
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def main() -> None:
    """Run Flower's `flower-superlink` with the arguments of this command."""
    extensions.get_middleware = lambda: (Middleware(LocalControl),)
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
