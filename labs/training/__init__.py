"""Training on one worker or many: start, fit, evaluate, learning rates, and Horovod's operations (`hvd_ops`)."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "batch_norm": ["recompute_statistics"],
    "devices": ["bind_to_cores"],
    "elastic": ["Elastic"],
    "keras_internals": ["take_steps"],
    "loop": ["compile_for", "evaluate", "fit"],
    "optimizers": ["fused"],
    "schedule": ["Warmup", "scaled_lr"],
    "trained": ["keep_model"],
    "workers": ["Job", "start"],
}, submodules=["hvd_ops", "keras_internals", "loopback"])
