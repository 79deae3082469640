"""The command line that is made from a lab's Config."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from labs.run import catalogue, command_line, fields
from labs.run.errors import LabError
from labs.run.options import Options


def labs(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "labs", *arguments], capture_output=True, text=True, timeout=60,
                          check=False)


@pytest.mark.parametrize(("name", "lab"), [
    ("lab10_caltech", "lab10_caltech"), ("lab10", "lab10_caltech"), ("lab10_c", "lab10_caltech"),
    ("lab1", "lab01_baseline"), ("lab01", "lab01_baseline"), ("1", "lab01_baseline"), ("lab0001", "lab01_baseline"),
    ("lab2", "lab02_horovod"), ("lab02", "lab02_horovod"), ("2", "lab02_horovod"), ("02", "lab02_horovod"),
    ("12", "lab12_elastic"), ("lab12", "lab12_elastic"), ("lab03_", "lab03_lr_scaling"),
])
def test_a_lab_is_found_by_its_number_or_a_unique_prefix(name, lab):
    assert catalogue.resolve(name) == lab


@pytest.mark.parametrize(("name", "line"), [
    ("lab", f"^more than one lab begins with 'lab': {', '.join(catalogue.lab_names())}$"),
    ("lab0", "^more than one lab begins with 'lab0': lab01_baseline, .*, lab09_fruits$"),
    ("lab99", r"^no lab is called 'lab99'; there are: lab01_baseline, .*lab12_elastic"),
    ("0", "^no lab is called '0'; "), ("-1", "^no lab is called '-1'; "), ("\u0662", "^no lab is called"),
    ("", "^no lab is called ''; "), (" ", "^no lab is called ' '; "), ("1" * 5000, r"^no lab is called '1+\.\.\.'"),
    ("lab02_horovdo", "did you mean lab02_horovod"), ("caltech", "did you mean lab10_caltech"),
    ("\x1b[31mred\n", r"^no lab is called '\\x1b\[31mred\\n'; there"), ("\udcff", r"^no lab is called '\\udcff'; "),
])
def test_a_name_that_is_no_lab_is_refused(name, line):
    with pytest.raises(LabError, match=line) as refused:
        catalogue.resolve(name)
    assert str(refused.value).isprintable()


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
    with pytest.raises(LabError, match="no preset is called 'fast'"):
        command_line.parse(lab, ["--preset", "fast"])


@pytest.mark.parametrize("arguments", [
    ["--batch-size", "0"], ["--epochs", "-1"], ["--validation-split", "1.5"], ["--base-lr", "nan"],
    ["--stall-seconds", "0"], ["--seed", "-3"],
])
def test_numbers_that_cannot_work_are_refused(arguments):
    with pytest.raises(LabError, match=f"{arguments[0]} .* is out of range; choose"):
        command_line.parse(catalogue.load_lab("lab10"), arguments)


def test_every_number_of_every_lab_has_a_range():
    for settings in (Options, *(catalogue.load_lab(name).Config for name in catalogue.lab_names())):
        numbers = {name for name, kind in typing.get_type_hints(settings).items() if kind in (int, float)}
        assert numbers == fields.bounds(settings).keys(), settings


@pytest.mark.slow
def test_commands_that_only_print_load_no_tensorflow():
    program = "import sys; sys.argv = ['labs', *{!r}]\nfrom labs import cli\n" \
              "try: cli.main()\nexcept SystemExit: pass\n" \
              "assert not {{'tensorflow', 'horovod', 'pandas', 'matplotlib'}} & set(sys.modules)"
    for arguments in ([], ["--version"], ["list"], ["run"], ["run", "lab10", "--help"], ["data", "list"],
                      ["completion", "bash"], ["check", "--only", "python", "--only", "datasets"]):
        done = subprocess.run([sys.executable, "-c", program.format(arguments)], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.parametrize(("arguments", "line"), [
    (["frob"], "no command is called 'frob'"),
    (["run", "lab99"], "no lab is called 'lab99'"),
    (["run", "--workers", "2"], "name the lab first"),
    (["run", "lab10", "--workers", "0"], "--workers: '0' is not a whole number from 1"),
    (["run", "lab10", "--workers", "999"], "999 workers on"),
    (["run", "lab10", "--preset", "x"], "no preset is called 'x'"),
    (["data", "fetch", "imagenet"], "imagenet"),
])
def test_a_mistake_is_told_in_one_line(arguments, line):
    done = labs(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("labs: error: ")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_config_survives_being_spelled_as_a_command_line():
    import dataclasses

    lab = catalogue.load_lab("lab10")
    config = dataclasses.replace(lab.presets["demo"], epochs=3, augment=False, data="a b'c", warmup_epochs=0.5)
    assert command_line.parse(lab, command_line.to_argv(config))[0] == config
    assert command_line.to_argv(lab.presets["demo"]) == []
