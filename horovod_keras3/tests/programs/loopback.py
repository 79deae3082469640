"""Run horovodrun with its servers, and those of workers that import this, on the loopback interface alone.

Horovod 0.28.1 binds them to every interface, also with --network-interfaces; as released, it unpickles what it gets.
"""

from horovod.runner.common.util import network as workers
from horovod.runner.http import http_server
from horovod.runner.launch import run_commandline
from horovod.runner.util import network


def find_port(server_factory):
    server = server_factory(("127.0.0.1", 0))
    return server, server.socket.getsockname()[1]


for module in (workers, http_server, network):
    module.find_port = find_port

if __name__ == "__main__":
    run_commandline()
