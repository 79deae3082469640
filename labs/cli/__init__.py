"""The command `labs` and its subcommands. Imports no TensorFlow."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {"commands": ["main"]})
