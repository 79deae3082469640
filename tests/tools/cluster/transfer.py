"""A TCP transfer between two nodes.

    python transfer.py receive            prints "ready", and accepts one connection after the other
    python transfer.py send HOST MB       prints the seconds until the receiver has everything
"""

import socket
import sys
import time

PORT = 5001


def receive() -> None:
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        while True:
            with server.accept()[0] as sender:
                while sender.recv(2**16):
                    pass
                sender.sendall(b".")


def send(host: str, megabytes: float) -> None:
    with socket.create_connection((host, PORT), timeout=2) as receiver:
        receiver.settimeout(60)
        began = time.monotonic()
        receiver.sendall(bytes(int(megabytes * 1e6)))
        receiver.shutdown(socket.SHUT_WR)
        assert receiver.recv(1) == b"."
        print(time.monotonic() - began)


if __name__ == "__main__":
    receive() if sys.argv[1] == "receive" else send(sys.argv[2], float(sys.argv[3]))
