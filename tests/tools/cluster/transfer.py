"""A TCP transfer between two nodes.

    python transfer.py receive            prints "ready", and accepts one connection after the other
    python transfer.py send HOST MB       prints the seconds until the receiver has everything
"""

import socket
import sys
import time

PORT = 5001

if sys.argv[1] == "receive":
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        while True:
            with server.accept()[0] as sender:
                while sender.recv(2**16):
                    pass
                sender.sendall(b".")
with socket.create_connection((sys.argv[2], PORT), timeout=2) as receiver:
    receiver.settimeout(60)
    began = time.monotonic()
    receiver.sendall(bytes(int(float(sys.argv[3]) * 1e6)))
    receiver.shutdown(socket.SHUT_WR)
    assert receiver.recv(1) == b"."
    print(time.monotonic() - began)
