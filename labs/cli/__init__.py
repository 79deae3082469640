"""The command `labs`. Imports no TensorFlow.

`commands` has the parser. Each subcommand is a module of the same name, with _ for -. It has two functions:
`add_arguments(parser)`, and `main(args)`, which returns the exit code, or None for 0.
"""

from typing import TYPE_CHECKING

from labs.run import lazy

if TYPE_CHECKING:
    from labs.cli.commands import main
else:
    __getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
