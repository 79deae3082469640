"""Elastic workers on one machine: the second host name for the worker that leaves, and servers bound to the loopback.

Imports no TensorFlow: `labs.launch.elastic_hosts`, which starts these workers, uses it too.
"""

from __future__ import annotations

import os

LEAVING_HOST = "127.0.0.1"
"""The host of the worker that leaves. A host that loses one worker loses all of them, so this one has its own name."""


def is_leaving() -> bool:
    """Return whether this process is the worker that leaves."""
    return os.environ.get("HOROVOD_HOSTNAME") == LEAVING_HOST


def listen_on_loopback() -> None:
    """Bind the servers of horovodrun and of its workers to the loopback interface.

    Horovod 0.28.1 binds them to all interfaces, and unless patched as the kit's is, unpickles what it receives there.
    """
    from horovod.runner.common.util import network as workers
    from horovod.runner.http import http_server
    from horovod.runner.util import network

    def find_port(server_factory):
        # Horovod: it passes ("", port), all interfaces. With port 0 the kernel chooses a free one.
        server = server_factory(("127.0.0.1", 0))
        return server, server.socket.getsockname()[1]

    for module in (workers, http_server, network):
        module.find_port = find_port
