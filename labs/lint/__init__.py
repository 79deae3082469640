"""Checks that find implausible figures in tables of results."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "checker": ["check", "check_csv"],
}, submodules=["checker"])
