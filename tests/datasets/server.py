"""A real HTTP server on this machine that can misbehave on purpose."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves `body` at any path; the attributes say how it misbehaves."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body = b""
        self.status = 200
        self.content_type = "application/octet-stream"
        self.etag = '"1"'
        self.ranges = True  # Understands the Range header.
        self.length = True  # Sends the Content-Length.
        self.cuts: list[int] = []  # Bytes after which the next connections are cut.
        self.requests: list[str | None] = []  # The Range header of every request.
        self.errors: list[int] = []  # Status codes of the next answers, before it serves again.
        self.last = False  # Closes its socket after the next answer.
        self.gate: threading.Event | None = None  # Waits for it in the middle of the body.
        self.at_gate = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, begin = self.server, 0
        wanted = self.headers.get("Range")
        server.requests.append(wanted)
        if server.errors:
            self.send_error(server.errors.pop(0))
            return
        if server.last:
            server.socket.close()
        if wanted and server.ranges and self.headers.get("If-Range", server.etag) == server.etag:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if begin and begin >= len(server.body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.body)}")
            self.end_headers()
            return
        self.send_response(206 if begin else server.status)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(server.body) - 1}/{len(server.body)}")
        if server.length:
            self.send_header("Content-Length", str(len(server.body) - begin))
        self.send_header("Content-Type", server.content_type)
        self.send_header("ETag", server.etag)
        self.end_headers()
        self.send(server.body[begin:])

    def send(self, rest: bytes) -> None:
        if self.server.cuts:
            rest = rest[: self.server.cuts.pop(0)]
        middle = len(rest) // 2
        with contextlib.suppress(ConnectionError):
            self.wfile.write(rest[:middle])
            if self.server.gate:
                self.server.at_gate.set()
                self.server.gate.wait()
            self.wfile.write(rest[middle:])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Run a server in a thread."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            if server.gate:
                server.gate.set()
            server.shutdown()
            thread.join()
