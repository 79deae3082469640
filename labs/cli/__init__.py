"""The command `labs`. Imports no TensorFlow."""

from labs.cli.commands import main
