"""Lazy public names: loaded when used, once, and a wrong name is an AttributeError."""

from __future__ import annotations

import subprocess
import sys

import pytest

import labs.cli


def test_a_public_name_is_loaded_when_it_is_first_used():
    program = ("import sys, labs.cli; before = 'labs.cli.commands' in sys.modules; labs.cli.main;"
               " print(before, 'labs.cli.commands' in sys.modules, vars(labs.cli)['main'] is labs.cli.main)")
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == ["False", "True", "True"]
    with pytest.raises(AttributeError, match=r"module 'labs\.cli' has no attribute 'mian'"):
        labs.cli.mian  # noqa: B018
