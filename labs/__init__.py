"""Lab kit for distributed training with TensorFlow, Keras and Horovod."""

__version__ = "0.1.0"
