"""The command line that is made from a lab's Config."""

import dataclasses
import subprocess
import sys
import typing

import pytest

from labs.run import catalogue, command_line, fields
from labs.run.fields import Options

LAB = catalogue.load_lab("lab10")


@pytest.mark.parametrize(("name", "lab"), [
    ("lab10", "lab10_caltech"), ("lab10_c", "lab10_caltech"), ("lab1", "lab01_baseline"), ("01", "lab01_baseline"),
    ("2", "lab02_horovod"),
])
def test_a_lab_is_found_by_its_number_or_a_unique_prefix(name, lab):
    assert catalogue.resolve(name) == lab


def test_a_preset_is_where_the_defaults_come_from():
    demo, options = command_line.parse(LAB, [])
    assert demo == LAB.presets["demo"]
    assert options == Options()
    paper, _ = command_line.parse(LAB, ["--batch-size", "7", "--preset", "paper"])
    assert paper.batch_size == 7
    assert paper.epochs == LAB.presets["paper"].epochs != demo.epochs


def test_every_number_of_every_lab_has_a_range():
    for settings in (Options, *(catalogue.load_lab(name).Config for name in catalogue.lab_names())):
        numbers = {name for name, kind in typing.get_type_hints(settings).items() if kind in (int, float)}
        assert numbers == fields.metadata(settings, fields.Range).keys(), settings


@pytest.mark.slow
def test_commands_that_only_print_load_no_tensorflow():
    program = "import sys; sys.argv = ['labs', *{!r}]\nfrom labs import cli\n" \
              "try: cli.main()\nexcept SystemExit: pass\n" \
              "assert not {{'tensorflow', 'horovod', 'pandas', 'matplotlib'}} & set(sys.modules)"
    for arguments in ([], ["--help"], ["run", "lab10", "--help"], ["data", "list"],
                      ["sweep", "lab04", "--list"], ["check", "--only", "python", "--only", "packages"]):
        done = subprocess.run([sys.executable, "-c", program.format(arguments)], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_a_config_survives_as_a_command_line():
    config = dataclasses.replace(LAB.presets["demo"], epochs=3, augment=False, data="a b'c", warmup_epochs=0.5)
    assert command_line.parse(LAB, command_line.to_argv(config))[0] == config
    assert command_line.to_argv(LAB.presets["demo"]) == []


def test_the_help_of_a_lab_explains_all_options_and_has_the_defaults_of_the_preset(capsys):
    with pytest.raises(SystemExit):
        command_line.parse(LAB, ["--help", "--preset", "paper"], launches=True)
    text = " ".join(capsys.readouterr().out.split())
    for line in ("launch options: --workers N", "experiment options: --preset {demo,paper}", "run options: --name",
                 "--batch-size INT Images per worker and step. (default: 32)", "--augment, --no-augment"):
        assert line in text
