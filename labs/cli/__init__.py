"""The command `labs` and its subcommands. Imports no TensorFlow."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"commands": ["main"]})
