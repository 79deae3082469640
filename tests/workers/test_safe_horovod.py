"""Horovod's servers and everyone else who can reach them: nothing is unpickled without the key of the launch."""

import base64
import contextlib
import http.client
import itertools
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PROGRAM = Path(__file__).parent / "programs" / "elastic_function.py"
SERVERS = ("/worker_addresses/localhost:0", "/runfunc/func")
"""What elastic's rendezvous unpickles at once, and what workers fetch from the key-value server and unpickle."""


class Trap:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.fixture
def launch(tmp_path):
    """Start two elastic workers that wait for the file `go`, and return the launcher when they are there."""
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\necho $_HOROVOD_SECRET_KEY >{tmp_path}/key; touch {tmp_path}/waiting-$HOROVOD_RANK\n"
                      f'until [ -e {tmp_path}/go ]; do sleep 0.1; done\nexec {sys.executable} "$@"\n')
    worker.chmod(0o755)
    process = psutil.Popen([sys.executable, PROGRAM, worker, "localhost:2"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    while len(list(tmp_path.glob("waiting-*"))) < 2:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    yield process
    (tmp_path / "go").touch()
    if process.poll() is None:
        process.terminate()
        process.wait(60)


def send(port: int, method: str, path: str, body: bytes, **headers: str) -> int:
    """Send a request as any user of the machine can, and return the status; 0 if the server hangs up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.suppress(ConnectionError), contextlib.closing(connection):
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    return 0


def test_a_strangers_pickle_is_refused_and_training_goes_on(launch, tmp_path):
    ports = [each.laddr.port for each in launch.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert len(ports) == 2
    traps = {path: base64.b64encode(pickle.dumps(Trap(tmp_path / f"executed{path.replace('/', '-')}")))
             for path in SERVERS}
    keys = ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {'0' * 32}"})
    requests = itertools.product(ports, ("PUT", "GET", "HEAD", "DELETE"), traps.items(), keys)
    answers = {send(port, method, *trap, **key) for port, method, trap, key in requests}
    # Half of the key is sent on the wire, so others may have read it. It does not make a signature, here 32 zeros.
    half = (tmp_path / "key").read_text()[:32]
    for port in ports:
        send(port, "PUT", SERVERS[0], bytes(32) + traps[SERVERS[0]], Authorization=f"Bearer {half.strip()}")
    (tmp_path / "go").touch()
    output = launch.communicate()[0]
    assert not list(tmp_path.glob("executed-*")), output
    assert answers <= {403, 0}
    assert (launch.returncode, "weights [3.0, 3.0]" in output) == (0, True), output
