"""Downloads: from the first mirror that works, going on where a broken one stopped, into place only when it is right.

Only https is spoken (and plain http with this machine itself), and a redirect may not change that. What arrives is
written to a .partial file beside its place; it is renamed when its length and its SHA-256 are right.
"""

import hashlib
import http.client
import ipaddress
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from e2fl.data.files.catalogue import File
from e2fl.errors import DataError
from e2fl.version import __version__

BLOCK = 2**16
ATTEMPTS = 3  # at one mirror, as long as each brings it further
TIMEOUT = 30.0  # seconds of silence

Heard = Callable[[int, int | None], None]  # is told bytes so far, and of how many


class MirrorError(Exception):
    """A mirror that did not give what it should."""


def download(file: File, target: Path, heard: Heard = lambda done, whole: None, *, timeout: float = TIMEOUT) -> str:
    """Fetch a file to `target`; the SHA-256 of what came. Raises `DataError` when no mirror gave it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    reasons = []
    for url in file.urls:
        try:
            _fetch(url, partial, file, heard, timeout)
            digest = _verified(partial, file)
            os.replace(partial, target)
            return digest
        except MirrorError as error:
            reasons.append(f"{url}: {error}")
    raise DataError(
        f"{file.name} could not be fetched; put it at {target} yourself. Tried: {'; '.join(reasons) or 'no mirror'}"
    )


def _fetch(url: str, partial: Path, file: File, heard: Heard, timeout: float) -> None:
    """Bring `partial` to its full length from one mirror."""
    for _ in range(ATTEMPTS):
        before = _size(partial)
        if file.sha256 is not None and before == file.size:
            return
        try:
            if _receive(url, partial, file, heard, timeout):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what we have is not the beginning of what they have
                partial.unlink(missing_ok=True)
                reason = "it cannot go on from here"
                continue
            if 300 <= error.code < 400:
                _refuse_scheme(error.headers.get("Location", ""), urlsplit(url).scheme)
            raise MirrorError(f"HTTP {error.code}") from error
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            reason = str(getattr(error, "reason", None) or error or type(error).__name__)
        if _size(partial) <= before:
            raise MirrorError(reason)
    raise MirrorError(reason)


def _receive(url: str, partial: Path, file: File, heard: Heard, timeout: float) -> bool:
    """Append what comes; whether it was all of it."""
    start = _size(partial)
    headers = {"User-Agent": f"e2fl/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    _refuse_scheme(url, None)
    request = urllib.request.Request(url, headers=headers)
    opener = urllib.request.build_opener(_SameScheme())
    with opener.open(request, timeout=timeout) as reply:
        start = _resumed_at(reply, start)
        whole = _length(reply, start)
        if whole is not None and whole > file.size:
            raise MirrorError(f"it has {whole} bytes; {file.size} is the most it may have")
        with partial.open("r+b" if start else "wb") as out:
            out.seek(start)
            out.truncate()
            done = _copy(reply, out, start, file.size, lambda size: heard(size, whole))
    return done == (file.size if file.sha256 is not None else whole if whole is not None else done)


def _copy(reply: IO[bytes], out: IO[bytes], done: int, limit: int, heard: Callable[[int], None]) -> int:
    while True:
        part = reply.read(BLOCK)
        if not part:
            return done
        if done + len(part) > limit:
            raise MirrorError(f"it sends more than {limit} bytes")
        out.write(part)
        done += len(part)
        heard(done)


def _resumed_at(reply: Any, wanted: int) -> int:
    """Where what is sent begins: a mirror may not know how to go on, and begin anew."""
    if reply.status != 206:
        return 0
    match = re.fullmatch(r"bytes (\d+)-\d+/(?:\d+|\*)", reply.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != wanted:
        raise MirrorError("it sends another part than was asked for")
    return wanted


def _length(reply: Any, start: int) -> int | None:
    """How long the whole file is, if we are told."""
    said = reply.headers.get("Content-Length", "")
    return start + int(said) if said.isdigit() else None


def _verified(partial: Path, file: File) -> str:
    """The SHA-256, if it is what it should be; what is wrong is removed, so that nobody goes on from it."""
    digest = hashlib.sha256()
    with partial.open("rb") as raw:
        while part := raw.read(2**20):
            digest.update(part)
    found = digest.hexdigest()
    if file.sha256 is not None and found != file.sha256:
        partial.unlink()
        raise MirrorError(f"its SHA-256 is {found}, not {file.sha256}")
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


class _SameScheme(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _refuse_scheme(newurl, urlsplit(req.full_url).scheme)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refuse_scheme(url: str, before: str | None) -> None:
    parts = urlsplit(url)
    if before is not None and parts.scheme != before:
        raise MirrorError(f"it redirects from {before} to {parts.scheme}")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_this_machine(parts.hostname)):
        raise MirrorError(f"{parts.scheme or 'a bare path'} is not spoken, only https")


def _is_this_machine(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
