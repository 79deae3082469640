"""Lab kit for distributed training with TensorFlow, Keras and Horovod.

Importing it sets the environment variables of SETTINGS, unless they are set: TensorFlow and MPI read them when they
load, so they cannot be set later.
"""

import io
import os
import sys
from typing import TYPE_CHECKING

from labs.run import attach_lazily, environment

__version__ = "0.1.0"

SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "KERAS_NNX_ENABLED": "false",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true", **environment.ENVIRONMENT}
"""Environment variables that the kit sets unless the student has: TensorFlow logs errors only, Keras uses TensorFlow
whatever keras.json says, a notebook's TensorFlow leaves its workers room on the GPU, and the faster options apply."""
for _name, _value in SETTINGS.items():
    os.environ[_name] = os.environ.get(_name) or _value
if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors="backslashreplace")  # For names with characters that the terminal cannot encode.
sys.meta_path.insert(0, environment.HorovodsKerasLayer())
if "tensorflow" not in sys.modules:
    sys.meta_path.insert(0, environment.TensorFlowImport())

# All that a lab needs besides the packages: `from labs import Lab, Options, datasets, fields, main, models, training`.
if TYPE_CHECKING:
    from labs.run import Lab, LabError, Options, Range, Sweep, divide, fields, main
else:
    __getattr__, __dir__, __all__ = attach_lazily(__name__, __file__)
