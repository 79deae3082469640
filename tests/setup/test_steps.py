"""The steps of `make env`: a missing network, pip's mirrors, and the lock that outlives a killed run."""

import os
import subprocess
import sys

import pytest
from packages import uv_settings
from steps import SetupError, Steps, locked

from tests.setup.clone import ROOT
from tests.tools.cluster.client import until

NOWHERE = "http://127.0.0.1:9"  # Nothing listens there.


@pytest.fixture
def steps(tmp_path):
    return Steps(2, tmp_path / "log")


def test_a_killed_command_and_a_missing_network_are_reported_as_such(steps, tmp_path, monkeypatch):
    with pytest.raises(SetupError, match=r"bash was killed, most likely for lack of memory"):
        steps.run(["bash", "-c", "kill -9 $$"], os.environ)
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "uv", "--no-config", "pip", "install", "--target", "here", "--index-url", NOWHERE,
               "labs-nowhere"]
    clean = {name: value for name, value in os.environ.items() if "INDEX" not in name and "FIND_LINKS" not in name}
    with pytest.raises(SetupError, match=r"^the package index cannot be reached"):
        steps.run(command, clean | {"UV_HTTP_RETRIES": "0", "NO_PROXY": "127.0.0.1"})


def test_pips_mirrors_and_certificates_are_uvs(steps, tmp_path):
    conf = tmp_path / "pip.conf"
    conf.write_text("[global]\nindex-url = https://elsewhere/simple\ncert = /elsewhere.pem\n")
    others = ("PIP_", "UV_", "SSL_", "HOME", "XDG_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)} | {
        "PIP_CONFIG_FILE": str(conf), "HOME": str(tmp_path)}

    def passed(**variables: str) -> set[tuple[str, str]]:
        settings = uv_settings(steps, sys.executable, env | variables)
        # Without those of the machine's own /etc/pip.conf.
        return {(name, value) for name, value in settings.items() if "elsewhere" in value}

    certificate = ("SSL_CERT_FILE", "/elsewhere.pem")
    assert passed() == {("UV_DEFAULT_INDEX", "https://elsewhere/simple"), certificate}
    assert passed(PIP_INDEX_URL="https://elsewhere/new") == {("UV_DEFAULT_INDEX", "https://elsewhere/new"), certificate}
    assert passed(UV_DEFAULT_INDEX="https://mine") == {certificate}


HOLDER = """
import os, sys
from pathlib import Path
from steps import Steps, locked
with locked(Path("lock"), ""):
    script = "echo $$ > child.new; mv child.new child; exec sleep 60"
    Steps(1, Path("log")).run(["bash", "-c", script], os.environ)
"""


def test_the_next_run_waits_for_what_a_killed_run_left_running(tmp_path):
    env = os.environ | {"PYTHONPATH": str(ROOT / "setup")}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=tmp_path, env=env)
    until((tmp_path / "child").exists, 60)
    holder.kill()
    holder.wait()
    child = int((tmp_path / "child").read_text())
    ending = subprocess.Popen(["bash", "-c", f"sleep 0.5; touch killed; kill {child}"], cwd=tmp_path)
    with locked(tmp_path / "lock", "waiting") as waited:
        assert waited
        assert (tmp_path / "killed").exists(), "did not wait for the child, which holds the lock until it is killed"
    ending.wait()
