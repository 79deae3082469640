"""The steps of `make env`: a missing network, and pip's mirrors."""

import os
import sys

import pytest
from packages import uv_settings
from steps import SetupError, Steps

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
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    settings = uv_settings(steps, sys.executable, env | {"PIP_CONFIG_FILE": str(conf), "HOME": str(tmp_path)})
    assert settings["UV_DEFAULT_INDEX"] == "https://elsewhere/simple"
    assert settings["SSL_CERT_FILE"] == "/elsewhere.pem"
