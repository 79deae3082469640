"""`labs notebook`: the kit's own kernel for this user only, no processes left, and copies that students may edit."""

import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
import requests
from jupyter_client import BlockingKernelClient

from labs.run import catalogue
from labs.run.paths import ROOT
from labs.tools.notebook import command, working_copies
from tests import listening
from tests.tools.cluster.client import until

ONE = f"{getpass.getuser()}@{socket.gethostname()}"
DECOY = {"argv": ["false", "{connection_file}"], "display_name": "Another Python", "language": "python"}
OPEN = 'c.ServerApp.ip = c.KernelManager.ip = "0.0.0.0"\nc.IdentityProvider.token = ""\n'


def make_home(home: Path) -> None:
    """Make a home in which another kernel is called python3, and whose settings would open Jupyter to everyone."""
    for name, text in ((".local/share/jupyter/kernels/python3/kernel.json", json.dumps(DECOY)),
                       (".jupyter/jupyter_server_config.py", OPEN)):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text(text)


def execute(home: Path, kernel: str, code: str) -> str:
    """Run code in a kernel and return what it printed."""
    client, texts = BlockingKernelClient(), list[str]()
    client.load_connection_file(str(home / f".local/share/jupyter/runtime/kernel-{kernel}.json"))
    client.start_channels(hb=False)  # A busy machine would make it miss heartbeats.
    client.wait_for_ready(timeout=60)
    assert client.get_connection_info()["curve_publickey"], "other users of this machine could read along"
    client.execute_interactive(code, timeout=60, output_hook=lambda each: texts.append(each["content"].get("text", "")))
    client.stop_channels()
    return "".join(texts)


@pytest.mark.slow
def test_only_this_user_reaches_the_server_whose_kernel_is_this_python_and_which_ends_with_its_kernels(tmp_path):
    make_home(tmp_path)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "JUPYTER_", "XDG_"))}
    env |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "LABS_RESULTS": "results", "SSH_CONNECTION": "a 1 b 22"}
    with psutil.Popen([sys.executable, "-m", "labs", "notebook"], env=env, cwd=tmp_path, stdin=subprocess.DEVNULL,
                      stdout=(tmp_path / "out").open("w"), stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            until(lambda: process.poll() is not None or "Ctrl-C" in (tmp_path / "out").read_text(), 90)
            output = (tmp_path / "out").read_text()
            port, token = re.search(r"http://127\.0\.0\.1:(\d+)/lab/tree/work\?token=(\w+)\n", output).groups()
            assert f"ssh -N -L {port}:127.0.0.1:{port} {ONE}\n" in output
            address = f"http://127.0.0.1:{port}/api/kernels"
            assert {requests.get(address, headers={"Authorization": f"token {each}"}, timeout=60).status_code
                    for each in ("", "guessed")} == {403}
            kernel = requests.post(address, headers={"Authorization": f"token {token}"}, timeout=60).json()["id"]
            code = "import sys, labs.run.paths; print(sys.executable, labs.run.paths.results_dir())"
            assert execute(tmp_path, kernel, code).split() == [sys.executable, str(tmp_path / "results")]
            family = [process, *process.children(recursive=True)]
            assert listening.addresses(*family) == {"127.0.0.1"}
            process.send_signal(signal.SIGINT)  # Ctrl-C.
            assert process.wait(30) == 0
            assert (len(family) > 1, psutil.wait_procs(family, timeout=10)[1]) == (True, [])
        finally:
            if process.poll() is None:
                process.kill()


def test_the_way_to_a_job_leads_through_the_login_node():
    through = f"ssh -N -L 8888:127.0.0.1:8888 -J {getpass.getuser()}@login1 {ONE}"
    assert command.tunnel(8888, {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}) == through
    assert "-J" not in command.tunnel(8888, {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": socket.gethostname()})


def write_page(path: Path, text: str, printed: str = "the answer") -> None:
    """Write a notebook with one cell, which has run."""
    output = [nbformat.v4.new_output("stream", text=printed)] * bool(printed)
    cell = nbformat.v4.new_code_cell(text, id="a", execution_count=7, outputs=output)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)


def test_the_copies_have_no_outputs_and_their_links_lead_into_the_kit(tmp_path):
    (tmp_path / "kit").symlink_to("/")  # Last year's kit.
    assert working_copies.update(ROOT / "notebooks", tmp_path) == []
    assert (tmp_path / "kit/docs").samefile(ROOT / "docs")
    copies = [nbformat.read(path, 4) for path in tmp_path.glob("*.ipynb")]
    assert len(copies) == len(catalogue.lab_names())
    assert not any(cell.get("outputs") or "](../" in cell.source for copy in copies for cell in copy.cells)


@pytest.mark.parametrize(("text", "printed"), [("my answer", ""), ("page", "my hour of training")])
def test_a_copy_follows_its_notebook_until_it_is_edited(tmp_path, text, printed):
    (tmp_path / "notebooks").mkdir()
    folders = tmp_path / "notebooks", tmp_path / "work"
    page, copy = (folder / "page.ipynb" for folder in folders)
    for version in ("page, first version", "page"):
        write_page(page, version)
        assert working_copies.update(*folders) == []
        assert nbformat.read(copy, 4).cells[0].source == version
        write_page(copy, version, "")  # JupyterLab saves it with its own metadata.
    write_page(copy, text, printed)
    edited = copy.read_text()
    assert working_copies.update(*folders) == [], "its notebook is the one it was copied from"
    write_page(page, "page, newest version")
    assert (working_copies.update(*folders), copy.read_text()) == (["page.ipynb"], edited)
    copy.unlink()
    assert (working_copies.update(*folders), nbformat.read(copy, 4).cells[0].outputs) == ([], [])
