"""The downloader, against a real HTTP server on this machine that misbehaves in every way we know."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from e2fl.data import commands
from e2fl.data.files import catalogue
from e2fl.data.files.catalogue import File, Source
from e2fl.data.files.download import _require_https, download
from e2fl.errors import DataError

BODY = bytes(range(256)) * 2000  # 512,000 bytes
SHA = hashlib.sha256(BODY).hexdigest()


class Server(BaseHTTPRequestHandler):
    """Serves BODY below /NAME/: how depends on the name."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        manner = self.path.split("/")[1]
        self.server.asked.append(manner)
        getattr(self, manner)()

    def good(self, body=BODY):
        self.reply(200, body)

    def cut(self):
        """The connection breaks half way."""
        self.reply(200, BODY[:200_000], length=len(BODY))
        self.close_connection = True

    def wrong(self):
        self.good(BODY[::-1])

    def huge(self):
        self.good(BODY * 3)

    def endless(self):
        """Does not say how long it is, and sends more than it should."""
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for _ in range(50):
                self.wfile.write(BODY)
        except OSError:
            pass  # hung up on, as it should be

    def missing(self):
        self.reply(404, b"no such file")

    def moved(self):
        self.reply(302, Location=f"http://127.0.0.1:{self.server.server_port}/good/file")

    def to_ftp(self):
        self.reply(302, Location="ftp://127.0.0.1/file")

    def to_file(self):
        self.reply(302, Location="file:///etc/hostname")

    def to_https(self):
        self.reply(302, Location="https://127.0.0.1:1/file")

    def away(self):
        self.reply(302, Location="http://192.0.2.1/file")

    def reply(self, status, body=b"", length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.handle_error = lambda *_: None  # being hung up on is what some of these tests are about
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server():
    with serving() as running:
        yield running


def file(server, *manners, sha256=SHA, size=512_000):
    return File("file", sha256, size, tuple(f"http://127.0.0.1:{server.server_port}/{manner}/" for manner in manners))


def test_a_file_arrives_whole_with_progress(server, tmp_path):
    seen = []
    assert download(file(server, "good"), tmp_path / "deep" / "file", lambda *now: seen.append(now)) == SHA
    assert (tmp_path / "deep" / "file").read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_a_cut_connection_leaves_nothing_behind_and_the_next_mirror_is_asked(server, tmp_path):
    with pytest.raises(DataError, match="the connection failed"):
        download(file(server, "cut"), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    download(file(server, "cut", "good"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_wrong_checksum_is_refused_and_the_next_mirror_asked(server, tmp_path):
    with pytest.raises(DataError, match="its SHA-256 is not the published one"):
        download(file(server, "wrong"), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    download(file(server, "wrong", "good"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_mirror_that_is_down_or_has_nothing_is_passed_over(server, tmp_path):
    with serving() as gone:
        port = gone.server_port
    wanted = File(
        "file",
        SHA,
        len(BODY),
        (f"http://127.0.0.1:{port}/good/", *file(server, "missing", "good").mirrors),
    )
    download(wanted, tmp_path / "file")
    assert server.asked == ["missing", "good"]


@pytest.mark.parametrize("manner", ["to_ftp", "to_file", "to_https"])
def test_a_redirect_to_another_scheme_is_refused(server, tmp_path, manner):
    with pytest.raises(DataError, match="redirects from http to"):
        download(file(server, manner), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_within_the_scheme_is_followed(server, tmp_path):
    download(file(server, "moved"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_only_https_is_spoken_except_with_this_machine(server, tmp_path):
    with pytest.raises(DataError, match="http is not supported"):
        download(file(server, "away"), tmp_path / "file")
    for url in ("http://example.org/file", "ftp://127.0.0.1/file", "file:///etc/hostname", "/etc/hostname"):
        with pytest.raises(DataError, match="only https"):
            download(File("", SHA, 10, (url,)), tmp_path / "file")
    with pytest.raises(Exception, match="redirects from https to http"):
        _require_https("http://127.0.0.1/file", "https")


@pytest.mark.parametrize("manner", ["huge", "endless"])
def test_more_than_was_promised_is_not_stored(server, tmp_path, manner):
    with pytest.raises(DataError, match=r"it (has|sends)"):
        download(file(server, manner), tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert all(path.stat().st_size <= len(BODY) for path in tmp_path.iterdir())


def test_when_all_mirrors_fail_the_error_names_each_and_the_place(server, tmp_path):
    with pytest.raises(DataError) as caught:
        download(file(server, "missing", "cut"), tmp_path / "file")
    message = str(caught.value)
    assert f"put it at {tmp_path / 'file'} yourself" in message
    assert "/missing/file: HTTP 404" in message
    assert "/cut/file: the connection failed" in message


def test_a_file_without_a_published_checksum_is_limited_in_size(server, tmp_path):
    assert download(file(server, "good", sha256=None, size=10**6), tmp_path / "file") == SHA
    with pytest.raises(DataError, match="1000 is the most"):
        download(file(server, "good", sha256=None, size=1000), tmp_path / "other")


def test_get_fetches_what_is_missing_into_the_data_directory(server, tmp_path, monkeypatch):
    source = Source("toys", "bytes", "none", (file(server, "good"),))
    monkeypatch.setitem(catalogue.SOURCES, "toys", source)
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert "in " in commands.get("toys")
    assert (tmp_path / "toys" / "file").read_bytes() == BODY
    assert "as published" in commands.check("toys")
    assert "already here" in commands.get("toys")
    (tmp_path / "toys" / "file").write_bytes(BODY[:-1] + b"x")
    with pytest.raises(DataError, match="SHA-256 differs"):
        commands.check("toys")
