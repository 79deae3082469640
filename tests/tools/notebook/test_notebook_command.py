"""`labs notebook`: the kit's own kernel, this machine only, no processes left."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from jupyter_client import BlockingKernelClient
from tornado.websocket import websocket_connect

from labs.run.paths import ROOT
from labs.tools.notebook import command
from tests import listening
from tests.tools.cluster.client import until
from tests.tools.notebook.conftest import Server, serving

ONE = f"{getpass.getuser()}@{socket.gethostname()}"


@contextlib.contextmanager
def kernel(server: Server) -> Iterator[BlockingKernelClient]:
    """Start a kernel as JupyterLab does for a notebook, and yield a client that speaks with it."""
    answer = server.ask("POST", "sessions", kernel={"name": "python3"}, path="notebooks/lab01_baseline.ipynb",
                        name="lab01_baseline.ipynb", type="notebook")
    assert answer.status_code == 201, answer.text
    number = answer.json()["kernel"]["id"]
    client = BlockingKernelClient()
    client.load_connection_file(str(server.home / f".local/share/jupyter/runtime/kernel-{number}.json"))
    client.start_channels(hb=False)  # A busy machine would make it miss heartbeats.
    try:
        client.wait_for_ready(timeout=60)
        yield client
    finally:
        client.stop_channels()


def output(client: BlockingKernelClient, code: str) -> str:
    """Run code in the kernel and return what it printed."""
    texts = []
    client.execute_interactive(code, timeout=60, output_hook=lambda message: texts.append(message["content"]))
    return "".join(text.get("text", "") for text in texts)


@pytest.mark.slow
def test_a_terminal_has_this_environment_and_the_pages_files(server):
    """JupyterLab names the folder that its file browser shows: at first that of the working copies."""
    (server.home / ".bashrc").write_text("PATH=/usr/bin:/bin\n")
    name = server.ask("POST", "terminals", cwd="work").json()["name"]
    address = server.address.partition("/lab/")[0].replace("http", "ws")

    async def type_commands() -> str:
        terminal = await websocket_connect(f"{address}/terminals/websocket/{name}?token={server.token}")
        await terminal.write_message(json.dumps(["stdin", "type -p python labs; pwd; exit\r"]))
        answer = ""
        while (message := await terminal.read_message()) and "disconnect" not in message:
            answer += json.loads(message)[-1] if message.startswith('["stdout"') else ""
        return answer

    answer = asyncio.run(asyncio.wait_for(type_commands(), 60))
    for line in (sys.executable, Path(sys.executable).with_name("labs"), ROOT):
        assert f"{line}\r\n" in answer


@pytest.mark.slow
def test_the_kernel_is_this_python_and_only_this_machine_reaches_it_with_the_token(server):
    with kernel(server) as client:
        assert output(client, "import sys; print(sys.executable, sys.prefix)").split() == [sys.executable, sys.prefix]
        # The server was started in the home, with a relative LABS_RESULTS.
        assert output(client, "import labs.run.paths; print(labs.run.paths.results_dir())").strip() == str(
            server.home / "results")
        magic = "print(get_ipython().find_cell_magic('px').__module__)"
        assert output(client, magic).split() == ["labs.launch.resident"], "it says what to run first"
        family = server.family()
        assert len(family) > 1
        assert listening.addresses(*family) == {"127.0.0.1"}
        assert client.get_connection_info()["curve_publickey"], "other users of this machine could read along"
    assert set(server.ask("GET", "kernelspecs").json()["kernelspecs"]) == {"python3"}
    assert {server.ask("GET", "kernels", token=token).status_code for token in ("", "guessed")} == {403}


@pytest.mark.slow
def test_a_browser_opens_the_notebooks(server):
    opened = server.home / "opened"
    until(opened.exists)
    assert f"/lab/tree/work?token={server.token}" in opened.read_text()
    assert "ssh" not in server.output


@pytest.mark.slow
def test_by_ssh_it_tells_the_way_takes_the_next_port_and_ends_with_its_kernels(server, tmp_path):
    with serving(tmp_path, DISPLAY=":0", SSH_CONNECTION="a 1 b 22") as mine:
        port = int(re.search(r":(\d+)/", mine.address)[1])
        assert port != int(re.search(r":(\d+)/", server.address)[1])
        assert f"ssh -N -L {port}:127.0.0.1:{port} {ONE}\n" in mine.output
        with kernel(mine) as client:
            client.execute("from labs.launch import supervisor\n"
                           "with supervisor.started(['sleep', '600']) as one: one.wait()")
            until(lambda: len(mine.family()) >= 3)
            family = mine.family()
            mine.process.send_signal(signal.SIGINT)  # Ctrl-C.
            assert mine.process.wait(30) == 0
        assert not psutil.wait_procs(family, timeout=10)[1]
        assert not (tmp_path / "opened").exists()


def test_the_way_to_a_job_leads_through_the_login_node():
    through = f"ssh -N -L 8888:127.0.0.1:8888 -J {getpass.getuser()}@login1 {ONE}"
    assert command.tunnel(8888, {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}) == through
    assert "-J" not in command.tunnel(8888, {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": socket.gethostname()})
