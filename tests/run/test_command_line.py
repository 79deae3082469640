"""The command line that is made from a lab's Config."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import typing

import pytest

from labs.run import catalogue, command_line, fields
from labs.run.options import Options


@pytest.mark.parametrize(("name", "lab"), [
    ("lab10", "lab10_caltech"), ("lab10_c", "lab10_caltech"), ("lab1", "lab01_baseline"), ("01", "lab01_baseline"),
    ("2", "lab02_horovod"),
])
def test_a_lab_is_found_by_its_number_or_a_unique_prefix(name, lab):
    assert catalogue.resolve(name) == lab


def test_resolving_a_name_imports_no_lab():
    program = "import sys; from labs.run import catalogue; catalogue.resolve('2'); " \
              "sys.exit('labs.lab02_horovod' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
    assert catalogue.load_lab("lab10").module == "labs.lab10_caltech"


def test_a_preset_is_where_the_defaults_come_from():
    lab = catalogue.load_lab("lab10")
    demo, options = command_line.parse(lab, [])
    assert demo == lab.presets["demo"]
    assert options == Options()
    paper, _ = command_line.parse(lab, ["--batch-size", "7", "--preset", "paper"])
    assert paper.batch_size == 7
    assert paper.epochs == lab.presets["paper"].epochs != demo.epochs


def test_the_name_of_a_launch_option_may_be_a_value():
    _, options = command_line.parse(catalogue.load_lab("lab10"), ["--name", "workers"])
    assert options.name == "workers"


def test_every_number_of_every_lab_has_a_range():
    for settings in (Options, *(catalogue.load_lab(name).Config for name in catalogue.lab_names())):
        numbers = {name for name, kind in typing.get_type_hints(settings).items() if kind in (int, float)}
        assert numbers == fields.bounds(settings).keys(), settings


@pytest.mark.slow
def test_commands_that_only_print_load_no_tensorflow():
    program = "import sys; sys.argv = ['labs', *{!r}]\nfrom labs import cli\n" \
              "try: cli.main()\nexcept SystemExit: pass\n" \
              "assert not {{'tensorflow', 'horovod', 'pandas', 'matplotlib'}} & set(sys.modules)"
    for arguments in ([], ["--version"], ["run"], ["run", "lab10", "--help"], ["data", "list"],
                      ["check", "--only", "python", "--only", "packages"]):
        done = subprocess.run([sys.executable, "-c", program.format(arguments)], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_a_config_survives_being_spelled_as_a_command_line():
    lab = catalogue.load_lab("lab10")
    config = dataclasses.replace(lab.presets["demo"], epochs=3, augment=False, data="a b'c", warmup_epochs=0.5)
    assert command_line.parse(lab, command_line.to_argv(config))[0] == config
    assert command_line.to_argv(lab.presets["demo"]) == []
