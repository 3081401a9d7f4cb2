"""A server on this machine that has files."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Handler(BaseHTTPRequestHandler):
    """Answers with the file that the server has for the first part of the path."""

    def do_GET(self):
        body = self.server.files.get(self.path.split("/")[1])
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    """Give the server these files, by the first part of their path; return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files = {}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/"
    yield lambda **files: server.files.update(files) or address
    server.shutdown()
    server.server_close()
    thread.join()
