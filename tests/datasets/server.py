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
        self.content_type = "application/octet-stream"
        self.etag = '"1"'
        self.shift = 0  # By how many bytes the answer to a Range begins too early.
        self.cuts: list[int] = []  # Bytes after which the next connections are cut.
        self.errors: list[int] = []  # Status codes of the next answers, before it serves again.
        self.requests: list[str | None] = []  # The Range header of every request.
        self.gate: threading.Event | None = None  # Waits for it in the middle of the body.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, begin, wanted = self.server, 0, self.headers.get("Range")
        server.requests.append(wanted)
        if server.errors:
            self.send_error(server.errors.pop(0))
            return
        if wanted and self.headers["If-Range"] == server.etag:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-")) - server.shift
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(server.body) - 1}/{len(server.body)}")
        self.send_header("Content-Length", str(len(server.body) - begin))
        self.send_header("Content-Type", server.content_type)
        self.send_header("ETag", server.etag)
        self.end_headers()
        rest = server.body[begin:]
        if server.cuts:
            rest = rest[: server.cuts.pop(0)]
        with contextlib.suppress(ConnectionError):
            self.wfile.write(rest[: len(rest) // 2])
            if server.gate:
                server.gate.wait()
            self.wfile.write(rest[len(rest) // 2 :])

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
