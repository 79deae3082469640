"""Hosts of an elastic run on one machine: the removable one, and Horovod's servers bound to the loopback interface.

Loads no TensorFlow: the launcher uses it too.
"""

from __future__ import annotations

import os

REMOVABLE = "127.0.0.1"
"""The host of the worker that leaves. Horovod removes a host with all its workers, so that worker needs its own."""


def is_removable() -> bool:
    """Return whether this process is the worker that leaves."""
    return os.environ.get("HOROVOD_HOSTNAME") == REMOVABLE


def bind_to_loopback() -> None:
    """Make the servers of horovodrun and of its workers listen on this machine alone.

    Horovod 0.28.1 binds them to every interface, whatever --network-interfaces says, and horovodrun unpickles what is
    sent to it: anyone who can reach the port can execute code.
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
