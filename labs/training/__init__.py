"""Training on one worker or many: start, fit, evaluate, learning rates, and Horovod's operations (`hvd_ops`)."""

from typing import TYPE_CHECKING

from labs.run import attach_lazily

if TYPE_CHECKING:
    from labs.training import elastic_hosts, hvd_ops, keras_internals
    from labs.training.elastic import Elastic
    from labs.training.keras_internals import fused, take_steps
    from labs.training.layout import bind_to_cores
    from labs.training.loop import compile_for, evaluate, fit
    from labs.training.schedule import Warmup, scaled_lr
    from labs.training.trained import keep_model, recompute_statistics
    from labs.training.workers import Job, start
else:
    __getattr__, __dir__, __all__ = attach_lazily(__name__, __file__)
