"""The drill: `python -m tests.drill`."""

import labs  # noqa: F401 - sets what TensorFlow and Open MPI read when they load.
