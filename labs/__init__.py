"""Lab kit for distributed training with TensorFlow, Keras and Horovod."""

import os

from labs.run import fast

__version__ = "0.1.0"

SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "3"} | fast.ENVIRONMENT
"""Environment variables that the kit sets unless the student has: TensorFlow logs errors only, and what is faster."""
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)
