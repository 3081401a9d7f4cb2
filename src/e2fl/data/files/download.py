"""Downloads: each file from the first mirror that delivers it, verified before it is put in place.

pooch downloads to a temporary file, checks its SHA-256 and moves it. On top of that, only https is accepted (and plain
http from this machine itself), a redirect must not change that, and a mirror cannot send more than the file has.
"""

import ipaddress
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from e2fl.data.files.catalogue import File
from e2fl.errors import DataError
from e2fl.files import sha256_of
from e2fl.version import __version__

BLOCK = 2**16
TIMEOUT = 30.0  # seconds without data

Progress = Callable[[int, int | None], None]  # called with the bytes so far, and the bytes of the whole file if known


class MirrorError(Exception):
    """A mirror did not deliver the file."""


def download(
    file: File, target: Path, progress: Progress = lambda done, total: None, *, timeout: float = TIMEOUT
) -> str:
    """Download a file to `target` and return its SHA-256; raise `DataError` if no mirror delivers it."""
    reasons = []
    for url in file.urls:
        try:
            _fetch(url, file, target, progress, timeout)
            return sha256_of(target)
        except MirrorError as error:
            reasons.append(f"{url}: {error}")
    raise DataError(
        f"{file.name} could not be fetched; put it at {target} yourself. Tried: {'; '.join(reasons) or 'no mirror'}"
    )


def _fetch(url: str, file: File, target: Path, progress: Progress, timeout: float) -> None:
    """Download from one mirror."""
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    _require_https(url, None)
    downloader = pooch.HTTPDownloader(
        progressbar=_Meter(file.size, progress),
        chunk_size=BLOCK,
        timeout=timeout,
        headers={"User-Agent": f"e2fl/{__version__}", "Accept-Encoding": "identity"},
        hooks={"response": lambda response, **_: _check(response, file.size)},
    )
    try:
        pooch.retrieve(url, file.sha256, target.name, target.parent, downloader=downloader)
    except requests.HTTPError as error:
        code = error.response.status_code if error.response is not None else "error"
        raise MirrorError(f"HTTP {code}") from error
    except requests.RequestException as error:
        raise MirrorError(f"the connection failed ({type(error).__name__})") from error
    except ValueError as error:
        raise MirrorError("its SHA-256 is not the published one") from error
    except OSError as error:
        raise MirrorError(str(error)) from error


class _Meter:
    """A progress meter that stops a mirror that sends too much; pooch calls it like a tqdm bar."""

    def __init__(self, limit: int, progress: Progress):
        self.limit, self.progress = limit, progress
        self.done = 0
        self.total = 0  # set by pooch; 0: unknown

    def update(self, count: int) -> None:
        """Count bytes; pooch counts every block as a full one, and at the end adds the total once more."""
        self.done += count
        if self.done >= self.limit + BLOCK:
            raise MirrorError(f"it sends more than {self.limit} bytes")
        self.progress(min(self.done, self.total or self.done), self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Do nothing; pooch calls it."""


def _check(response: Any, limit: int) -> None:
    """Reject a redirect to another scheme, and a file whose announced size is too large."""
    if "Location" in response.headers and 300 <= response.status_code < 400:
        _require_https(urljoin(response.url, response.headers["Location"]), urlsplit(response.url).scheme)
    length = response.headers.get("Content-Length", "")
    if response.status_code == 200 and length.isdigit() and int(length) > limit:
        raise MirrorError(f"it has {length} bytes; {limit} is the most it may have")


def _require_https(url: str, before: str | None) -> None:
    parts = urlsplit(url)
    if before is not None and parts.scheme != before:
        raise MirrorError(f"it redirects from {before} to {parts.scheme}")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_this_machine(parts.hostname)):
        raise MirrorError(f"{parts.scheme or 'a bare path'} is not supported, only https")


def _is_this_machine(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
