"""Files of the data sets: mirrors, archives, arrays; damaged ones end in one line."""

import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from e2fl.data.files import SOURCES, File, load_arrays, read_idx
from e2fl.errors import DataError

BODY = bytes(range(256)) * 200
SHA = hashlib.sha256(BODY).hexdigest()


class Server(BaseHTTPRequestHandler):
    """Serves the file below /good/, another below /wrong/, nothing elsewhere."""

    def do_GET(self):
        body = {"good": BODY, "wrong": BODY[::-1]}.get(self.path.split("/")[1])
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def mirrors():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield lambda *names: tuple(f"http://127.0.0.1:{server.server_port}/{name}/" for name in names)
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_first_mirror_with_the_published_file_delivers_it(mirrors, tmp_path):
    file = File("file", len(BODY), mirrors("missing", "wrong", "good"), SHA)
    assert file.download(tmp_path / "deep").read_bytes() == BODY
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_another_file_than_the_published_one_is_never_put_in_place(mirrors, tmp_path):
    file = File("file", len(BODY), mirrors("missing", "wrong"), SHA)
    with pytest.raises(DataError, match=r"put it at .*404.*hash"):
        file.download(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_is_read_plain_or_gzipped_and_only_as_published(tmp_path):
    file, path = File("file", len(BODY), (), SHA), tmp_path / "file"
    path.write_bytes(BODY)
    (tmp_path / "file.gz").write_bytes(gzip.compress(BODY))
    assert file.contents(path) == file.contents(tmp_path / "file.gz") == BODY
    path.write_bytes(BODY[1:])
    with pytest.raises(DataError, match="SHA-256 differs"):
        file.contents(path)


def test_every_known_file_has_an_https_mirror_and_a_licence():
    for source in SOURCES.values():
        assert source.licence
        for file in source.files:
            assert all(mirror.startswith("https://") for mirror in file.mirrors)
            assert file.sha256 is not None or source.name == "femnist"


def test_idx_files_are_read_or_refused():
    raw = b"\0\0\x08\x02" + np.array([2, 3], ">u4").tobytes() + bytes(range(6))
    assert read_idx(gzip.compress(raw), "a").tolist() == [[0, 1, 2], [3, 4, 5]]
    for damaged in (gzip.compress(raw[:-1]), gzip.compress(raw[:3]), raw, gzip.compress(raw)[:-9]):
        with pytest.raises(DataError, match=r"^a is not"):
            read_idx(damaged, "a")


def test_arrays_come_from_an_npz_without_pickles(tmp_path):
    arrays = {"x": np.arange(1000.0), "y": np.arange(6)}
    np.savez(tmp_path / "a.npz", **arrays)
    loaded = load_arrays(tmp_path / "a.npz", ("x",), optional=("y", "z"))
    assert loaded.keys() == arrays.keys()
    assert all(np.array_equal(loaded[name], arrays[name]) for name in arrays)
    np.savez(tmp_path / "pickle.npz", x=np.array([{}], dtype=object))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-50])
    for name, array in (("a.npz", "client"), ("pickle.npz", "x"), ("cut.npz", "x")):
        with pytest.raises(DataError, match=f"{name} cannot be read"):
            load_arrays(tmp_path / name, (array,))
