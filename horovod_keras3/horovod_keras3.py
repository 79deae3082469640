"""Horovod for Keras 3: the optimizer, callbacks and elastic state of `horovod.tensorflow.keras`, in one file.

Horovod 0.28.1 has a Keras layer for Keras 2. On Keras 3 its DistributedOptimizer trains without an error but never
exchanges a gradient, and its callbacks raise. This file replaces that layer. It needs only TensorFlow, Keras 3 and
Horovod: install it (README.md), or copy it beside your script.

    import horovod_keras3 as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(optimizer), loss, jit_compile=False)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Names are those of `horovod.tensorflow.keras`; README.md says what differs, and what is refused with an
error that names the cause and the cure. Other names, such as `hvd.rank`, are those of `horovod.tensorflow`.

`DistributedOptimizer` changes the optimizer that it is given, and returns it. Class, config, variables and saved file
stay Keras' own; settings that change the result are kept in the optimizer's name, where `load_model` finds them. Under
"mixed_float16" it puts a LossScaleOptimizer around the optimizer first: `compile` would put one outside, where an
overflow on one worker would leave the others waiting.
"""

import functools
import json
import os
import re
import types
import warnings
import zlib
from collections import Counter
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow import Average, Compression, Sum, init, rank, shutdown, size
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.ops.control_flow_v2_func_graphs import CondBranchFuncGraph

_version = getattr(tf.keras, "__version__", "2")  # Keras 2.15's tf.keras has none.
if int(_version.split(".")[0]) < 3:
    raise ImportError(f"horovod_keras3 needs Keras 3, and tf.keras is Keras {_version}: "
                      "use horovod.tensorflow.keras, or unset TF_USE_LEGACY_KERAS")
if tf.keras.backend.backend() != "tensorflow":
    raise ImportError(f"Horovod exchanges TensorFlow's tensors, but Keras runs on {tf.keras.backend.backend()}: "
                      "set KERAS_BACKEND=tensorflow")

SMALL_BYTES = 2**19
"""Gradients of less than this altogether are exchanged as one group. Two workers, an MLP of 0.4 MB, batch 32: 56,000
images/s as a group, 45,000 one by one (medians of six alternating runs)."""
SCALER_INSIDE = "put the LossScaleOptimizer inside: DistributedOptimizer(LossScaleOptimizer(optimizer))"
_labels: Counter = Counter()
"""How many optimizers have reduced gradients under each label."""


def __getattr__(name):
    if name.startswith("__"):  # With horovod's __path__, `import horovod_keras3.keras` would load its Keras 2 layer.
        raise AttributeError(name)
    return getattr(hvd, name)


def DistributedOptimizer(  # noqa: N802
    optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False,
    op=Average, backward_passes_per_step=1, average_aggregated_gradients=False, missing_as_zeros=False,
):
    """Make an optimizer reduce its gradients over all workers before it applies them, and return it.

    Args:
        optimizer: A Keras 3 optimizer; it may be built and have state.
        name: Label of its operations in Horovod's timeline; by default "Distributed" and the optimizer's class.
            In an elastic job, optimizers of one class whose variables have equal shapes need different names.
        device_dense: Device on which dense gradients are reduced.
        device_sparse: Device on which sparse gradients are gathered.
        compression: How dense gradients are sent: `Compression.none` or `Compression.fp16`.
        sparse_as_dense: Turn sparse gradients into dense ones first.
        op: Average or Sum.
        backward_passes_per_step: Passes whose gradients are added up before workers exchange them.
        average_aggregated_gradients: Divide that sum by the number of passes.
        missing_as_zeros: A gradient that is None, such as that of a head which this worker's loss does not use, is 0;
            includes `sparse_as_dense`. Otherwise all workers must have gradients of the same variables.

    Raises:
        TypeError: The optimizer is not one of Keras 3.
        ValueError: Arguments that Horovod or Keras 3 cannot combine.
    """
    _check(optimizer, op, backward_passes_per_step)
    label = name or f"Distributed{type(_inner(optimizer)).__name__}"
    if tf.keras.mixed_precision.dtype_policy().name == "mixed_float16" and not _scales_loss(optimizer):
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
    _keep_settings(optimizer, {
        "op": (op, Average), "backward_passes_per_step": (backward_passes_per_step, 1),
        "average_aggregated_gradients": (average_aggregated_gradients, False),
        "sparse_as_dense": (sparse_as_dense, False), "missing_as_zeros": (missing_as_zeros, False)})
    clips = any(getattr(_inner(optimizer), each, None) for each in ("clipnorm", "clipvalue", "global_clipnorm"))
    dense = {"device_dense": device_dense, "compression": compression, "op": op, "ignore_name_scope": True}
    reduce = _Reduction(label, dense, device_sparse, sparse_as_dense or missing_as_zeros, missing_as_zeros, clips)
    optimizer.horovod = _Passes(reduce, backward_passes_per_step, average_aggregated_gradients)
    optimizer.apply = types.MethodType(_reduce_then_apply, optimizer)
    optimizer.scale_loss = types.MethodType(_scale_loss, optimizer)
    return optimizer


def _keep_settings(optimizer, settings):
    """Write the settings that are not the default into the optimizer's name: the one text that Keras saves as it is."""
    chosen = {key: int(value) for key, (value, default) in settings.items() if value != default}
    saved = _saved_settings(optimizer)
    if saved and saved != chosen:
        raise ValueError(f"this optimizer was saved with {', '.join(f'{key}={saved[key]}' for key in saved)}: pass the "
                         "same, or load the model with hvd.load_model; to change them, set optimizer.name first")
    optimizer.name = optimizer.name.partition(".horovod")[0] + (
        ".horovod" + "".join(f".{key}-{value}" for key, value in chosen.items()) if chosen else "")


def _saved_settings(optimizer):
    """Return the settings in an optimizer's name, as arguments of DistributedOptimizer; Sum and True are 1."""
    kept = optimizer.name.partition(".horovod")[2].split(".")
    return {key: int(value) for key, _, value in (each.partition("-") for each in kept if each)}


@tf.autograph.experimental.do_not_convert
def _reduce_then_apply(optimizer, grads, trainable_variables=None):
    """Reduce the gradients, then apply them: the `apply` of a distributed optimizer."""
    _refuse_context()
    if trainable_variables is None and not optimizer.built:
        raise ValueError("apply(grads) needs a built optimizer: call optimizer.build(variables), or pass the variables")
    variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
    apply_of_keras = functools.partial(type(optimizer).apply, optimizer, trainable_variables=variables)
    passes = optimizer.horovod
    grads = passes.reduce.prepare(grads, variables)
    if passes.per_step == 1:
        apply_of_keras(passes.reduce(grads, variables, passes.weight))
    else:
        passes.add(optimizer, grads, variables, apply_of_keras)


def _scale_loss(optimizer, loss):
    """Scale the loss by the weight of this worker's batch, then as Keras does."""
    weight = optimizer.horovod.weight
    return type(optimizer).scale_loss(optimizer, loss if weight is None else loss * tf.cast(weight, loss.dtype))


class _Reduction:
    """Reduces gradients over all workers: a call takes and returns a list of gradients."""

    def __init__(self, label, dense, device_sparse, sparse_as_dense, missing_as_zeros, clips):
        self.label, self.dense, self.op = re.sub("[^a-zA-Z0-9_]", "_", label), dense, dense["op"]
        self.device_sparse, self.sparse_as_dense = device_sparse, sparse_as_dense
        self.missing_as_zeros, self.clips, self.unique = missing_as_zeros, clips, ""
        self.numbers: dict[Any, int] = {}  # Of the variables, in the order in which the workers agreed on them.
        self.agreed: dict[tuple, list] = {}
        with tf.device("CPU"):
            self.unit = tf.Variable(0.0, trainable=False)  # Samples of the largest batch of a `fit`'s first step.

    def prepare(self, grads, variables):
        """Return the gradients as tensors: one may be a variable, as in an accumulation loop, an array, or None."""
        if self.missing_as_zeros:
            grads = [tf.zeros_like(_tf_variable(variable)) if grad is None else grad
                     for grad, variable in zip(grads, variables, strict=True)]
        return [grad if grad is None or (_is_sparse(grad) and not self.sparse_as_dense) else tf.convert_to_tensor(grad)
                for grad in grads]

    def __call__(self, grads, variables, weight=None):
        """Return the reduced gradients; the weighted mean if this worker's loss was scaled by a weight."""
        if _alone():
            return [self._sum_rows(grad) if _is_sparse(grad) else grad for grad in grads]
        self._agree(grads, variables)
        sent = list(map(_sendable, grads))
        numbers: list[Any] = [self.numbers[_tf_variable(each).ref()] for each in variables]
        if weight is not None:
            sent, numbers, variables = [*sent, weight], [*numbers, "weight"], [*variables, self.unit]
        for index, grad in enumerate(sent):
            if _is_sparse(grad):
                sent[index] = self._gather(grad, numbers[index])
        for group in self._groups([index for index, grad in enumerate(sent) if isinstance(grad, tf.Tensor)],
                                  sent, variables):
            name = self._name("HorovodAllreduce", numbers[group[0]])
            together = [sent[index] for index in group]
            # Horovod: each worker gets the mean over all workers (`op`); what travels together is one group.
            reduced = hvd.grouped_allreduce(together, name=name, **self.dense) if len(group) > 1 else [
                hvd.allreduce(together[0], name=name, **self.dense)]
            for index, grad in zip(group, reduced, strict=True):
                sent[index] = grad
        if weight is not None:
            mean_weight = sent.pop()
            sent = [_times(grad, 1 / mean_weight) for grad in sent]
        return [grad if grad is None else _cast(grad, given.dtype) for grad, given in zip(sent, grads, strict=True)]

    def _agree(self, grads, variables):
        """Raise unless all workers have gradients of the same variables, and number these alike.

        The workers compare once for each list of variables. A worker that joins an elastic job would compare alone.
        """
        refs = tuple(_tf_variable(variable).ref() for variable in variables)
        kinds = ["none" if grad is None else "sparse" if _is_sparse(grad) else "dense" for grad in grads]
        for ref in refs:
            self.numbers.setdefault(ref, len(self.numbers))
        if refs not in self.agreed and not _elastic():
            mine = [(tuple(each.shape), str(each.dtype), kind) for each, kind in zip(variables, kinds, strict=True)]
            with tf.init_scope():  # Outside the graph that is being traced.
                everyone = _exchange("its first step", gradients=mine, earlier=_labels[self.label])
            _expect_equal([each["gradients"] for each in everyone], [_path(each) for each in variables],
                          "the gradient of {}", "let every worker's loss depend on the same variables, or pass "
                          "missing_as_zeros=True to DistributedOptimizer")
            self._take_name(max(each["earlier"] for each in everyone))
        elif not self.unique:
            shapes = repr([tuple(each.shape) for each in variables])
            self.unique = f"{self.label}_{zlib.crc32(shapes.encode()):08x}"
        expected = self.agreed.setdefault(refs, kinds)
        if expected != kinds:
            changed = next(index for index, kind in enumerate(kinds) if kind != expected[index])
            raise ValueError(f"the gradient of {_path(variables[changed])} is {kinds[changed]} here and was "
                             f"{expected[changed]} in an earlier step, so the workers may differ: pass "
                             "missing_as_zeros=True to DistributedOptimizer, or apply only the gradients that exist")

    def _gather(self, grad, number):
        """Return the sum or mean of a sparse gradient: the rows of all workers, concatenated."""
        name = self._name("HorovodAllgather", number)
        with tf.device(self.device_sparse):
            rows = hvd.allgather(grad.values, name=f"{name}_values", ignore_name_scope=True)
            indices = hvd.allgather(grad.indices, name=f"{name}_indices", ignore_name_scope=True)
            if self.op == Average:
                rows /= tf.cast(hvd.size_op() if _elastic() else size(), rows.dtype)
            return self._sum_rows(tf.IndexedSlices(rows, indices, grad.dense_shape))

    def _sum_rows(self, grad):
        """Return a sparse gradient with one row per index if it is clipped: Keras would clip the norm of the parts."""
        if not self.clips:
            return grad
        indices, position = tf.unique(grad.indices)
        rows = tf.math.unsorted_segment_sum(grad.values, position, tf.size(indices))
        return tf.IndexedSlices(rows, indices, grad.dense_shape)

    def _groups(self, dense, grads, variables):
        """Return the groups of dense gradients that are reduced together, as lists of indices; each has one dtype.

        By default each gradient is a group: it is exchanged as soon as it is computed, while backpropagation goes on in
        the earlier layers. Horovod fuses small gradients into one message. Gradients of less than SMALL_BYTES in all
        are one group: there is little to overlap, and two messages take two of Horovod's cycles. In eager mode each
        exchange would wait for the one before it, so all gradients are one group.
        """
        nbytes = sum(_tf_variable(variables[index]).shape.num_elements() * grads[index].dtype.size for index in dense)
        if not tf.executing_eagerly() and nbytes >= SMALL_BYTES:
            return [[index] for index in dense]
        return [[index for index in dense if grads[index].dtype == dtype]
                for dtype in dict.fromkeys(grads[index].dtype for index in dense)]

    def _take_name(self, earlier):
        """Set the part of the operations' names that tells this optimizer from others, on all workers alike.

        The default names contain those of Keras' layers, which differ if one worker builds one more model. So the
        optimizers of one label are numbered, each when it first reduces. A worker that joins an elastic job does not
        know how many came before it: there the shapes of the variables take the number's place.
        """
        if not self.unique:
            self.unique = f"{self.label}_{earlier}" if earlier else self.label
            _labels[self.label] = earlier + 1

    def _name(self, operation, number):
        """Return an operation's name, by which Horovod matches it with the same operation on the other workers.

        It has the number of the (first) variable. Horovod's elastic mode recognises its errors by "HorovodAllreduce".
        """
        return f"{operation}_{self.unique}_{number}"

    def weigh(self, samples):
        """Return the weight of this worker's batch: 1 for the largest one of the first step, which all workers know."""
        mine = tf.cast(samples, tf.float32)

        def agree():
            # Plus a variable: TensorFlow would exchange a constant when it optimizes the graph, maybe on one worker.
            self.unit.assign(hvd.allreduce(mine + self.unit, op=hvd.Max, name="HorovodAllreduce_samples",
                                           ignore_name_scope=True))
            return self.unit.read_value()

        return mine / tf.cond(self.unit > 0, self.unit.read_value, agree)


class _Passes:
    """Adds up the gradients of several passes; the last of them reduces the sums and updates the variables."""

    def __init__(self, reduce, per_step, average):
        self.reduce, self.per_step, self.average = reduce, per_step, average
        self.counter: Any = tf.Variable(0, trainable=False) if per_step > 1 else None
        self.sums: dict[Any, tf.Variable] = {}
        self.weight = None  # Of the batch of the step that is being traced or run.
        self.weights: Any = tf.Variable(0.0, trainable=False) if per_step > 1 else None  # Their sum over the passes.

    def add(self, optimizer, grads, variables, update):
        """Add the gradients of one pass; in the last pass call `update` with the reduced sums."""
        if any(map(_is_sparse, grads)):
            raise ValueError("backward_passes_per_step adds up dense gradients only: set sparse_as_dense=True")
        sums = self._sums(optimizer, grads, variables)
        for total, grad in zip(sums, grads, strict=True):
            if total is not None:
                total.assign_add(grad)
        if self.weight is not None:
            self.weights.assign_add(self.weight)
        self.counter.assign_add(1)
        tf.cond(self.counter >= self.per_step, functools.partial(self._update, sums, variables, update),
                lambda: tf.identity(self.counter))

    def reset(self):
        """Forget the passes since the last update."""
        if self.counter is not None:
            self.counter.assign(0)
            self.weights.assign(0)
        for total in self.sums.values():
            total.assign(tf.zeros_like(total))

    def _update(self, sums, variables, update):
        sums = [None if total is None else total.read_value() for total in sums]
        if self.weight is None:
            grads = self.reduce(sums, variables)
            factor = 1 / self.per_step if self.average else 1
        else:
            grads = self.reduce(sums, variables, self.weights.read_value())  # The mean over the samples of all passes.
            factor = 1 if self.average else self.per_step
        update([_times(grad, factor) for grad in grads])
        self.reset()
        return tf.identity(self.counter)

    def _sums(self, optimizer, grads, variables):
        """Return the sums for these gradients; the first pass creates them, outside the graph that is being traced.

        The update applies the sums of the last pass's variables; those of others would be lost.
        """
        with tf.init_scope():
            if not optimizer.built:
                optimizer.build(variables)
            present = {_tf_variable(variable).ref(): grad for variable, grad in zip(variables, grads, strict=True)
                       if grad is not None}
            if not self.sums:
                self.sums = {ref: tf.Variable(tf.zeros(ref.deref().shape, grad.dtype), trainable=False)
                             for ref, grad in present.items()}
        if self.sums.keys() != present.keys():
            raise ValueError("the passes of one update have gradients of different variables: apply all gradients in "
                             "each pass, pass missing_as_zeros=True, or set backward_passes_per_step=1")
        return [None if grad is None else self.sums[_tf_variable(variable).ref()]
                for variable, grad in zip(variables, grads, strict=True)]


def _exchange(place, **mine):
    """Return what each worker passed, by rank, as dictionaries: the one way in which the workers compare themselves.

    Every comparison has the same name for Horovod. So workers that are at different places of their programs do not
    wait for each other; all of them raise.
    """
    everyone = hvd.allgather_object((place, mine), name="HorovodAllgather_agreement")
    for index, (other, _) in enumerate(everyone):
        if other != everyone[0][0]:
            raise RuntimeError(f"the workers are at different places: rank 0 is at {everyone[0][0]}, rank {index} at "
                               f"{other}; give all workers the same callbacks (also EarlyStopping, after "
                               "MetricAverageCallback), validation data, epochs and steps")
    return [each for _, each in everyone]


def _expect_equal(lists, names, what, cure):
    """Raise RuntimeError unless all workers' lists are equal; name the first item that differs, and the rank."""
    for index, other in enumerate(lists):
        if other != lists[0]:
            pairs = zip(names, lists[0], other, strict=False)
            name, here, there = next((each for each in pairs if each[1] != each[2]),
                                     ("their number", len(lists[0]), len(other)))
            raise RuntimeError(f"the workers differ in {what.format(name)}: rank 0 has {here}, rank {index} {there}; "
                               f"{cure}")


def _tf_variable(variable):
    return variable.value if isinstance(variable, tf.keras.Variable) else variable


def _is_sparse(grad):
    return isinstance(grad, tf.IndexedSlices)


def _cast(grad, dtype):
    if grad.dtype == dtype:
        return grad
    return tf.IndexedSlices(tf.cast(grad.values, dtype), grad.indices, grad.dense_shape) if _is_sparse(grad) else (
        tf.cast(grad, dtype))


def _sendable(tensor):
    """Return a tensor in a type that Horovod's CPU operations know: they know no bfloat16."""
    return _cast(tensor, tf.float32) if getattr(tensor, "dtype", None) == tf.bfloat16 else tensor


def _times(grad, factor):
    if grad is None or (isinstance(factor, int) and factor == 1):
        return grad
    if _is_sparse(grad):
        return tf.IndexedSlices(_times(grad.values, factor), grad.indices, grad.dense_shape)
    return grad * tf.cast(factor, grad.dtype)


def _path(variable):
    return getattr(variable, "path", variable.name)


def _elastic():
    return os.environ.get("HOROVOD_ELASTIC") == "1"


def _alone():
    """Return whether there is nothing to exchange; False in an elastic job, whose size may change after tracing."""
    return not _elastic() and size() == 1


def _scales_loss(optimizer):
    return isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)


def _inner(optimizer):
    return optimizer.inner_optimizer if _scales_loss(optimizer) else optimizer


def _check(optimizer, op, backward_passes_per_step):
    """Raise on arguments that Horovod or Keras 3 cannot combine."""
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise TypeError(f"DistributedOptimizer takes an optimizer of Keras 3, not {optimizer!r}: make one with "
                        "tf.keras.optimizers; for a name such as 'adam' with tf.keras.optimizers.get")
    if hasattr(optimizer, "horovod"):
        raise ValueError("this optimizer already reduces its gradients: call DistributedOptimizer once")
    inner = _inner(optimizer)
    if hasattr(inner, "horovod"):
        raise ValueError(SCALER_INSIDE)
    if op not in (Average, Sum):
        raise ValueError("op must be Average or Sum: this optimizer has no other reduction")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be at least 1")
    if backward_passes_per_step > 1 and getattr(inner, "gradient_accumulation_steps", None):
        raise ValueError("gradient_accumulation_steps and backward_passes_per_step both add up gradients: choose one; "
                         "with the latter workers communicate only once per step")


def _refuse_context():
    """Raise where a reduction cannot run, or could wait forever."""
    graph = tf.compat.v1.get_default_graph()
    if GraphOrParentsInXlaContext(graph):
        raise ValueError("XLA does not know Horovod's operations: compile the model with jit_compile=False (the "
                         "default, 'auto', turns XLA on where there is a GPU); pass the same to tf.function")
    if isinstance(graph, CondBranchFuncGraph):
        raise ValueError("the optimizer is applied inside tf.cond, where workers that decide differently would wait "
                         "for each other forever; put a LossScaleOptimizer inside, as in DistributedOptimizer("
                         "LossScaleOptimizer(optimizer)), and use backward_passes_per_step to add up gradients")


def broadcast_variables(variables, root_rank):
    """Broadcast the values of the root's variables, of Keras or TensorFlow, to all workers."""
    refs = tuple(_tf_variable(each).ref() for each in variables)
    if refs:
        _broadcast_function(refs, root_rank)()


@functools.lru_cache(maxsize=1)  # A second fit, or an elastic job's reset, broadcasts the same variables.
def _broadcast_function(refs, root_rank):
    def broadcast_all():
        # The default names would be those of Keras' layers, which differ if one worker builds one more model.
        for index, ref in enumerate(refs):
            variable = ref.deref()
            received = hvd.broadcast(_sendable(variable.value()), root_rank, name=f"HorovodBroadcast_{index}",
                                     ignore_name_scope=True)
            variable.assign(tf.cast(received, variable.dtype))

    return tf.function(broadcast_all, autograph=False).get_concrete_function()


def average_statistics(model):
    """Set the moving statistics of a model, such as batch normalization's, to their mean over all workers.

    Each worker's come from its own samples. Call it on all workers before one of them saves the model.
    """
    weights = [_tf_variable(each) for each in model.non_trainable_weights]
    weights = [each for each in weights if each.dtype.is_floating]
    if weights and size() > 1:
        means = hvd.grouped_allreduce([tf.cast(each, tf.float64) for each in weights], op=Average)
        for weight, mean in zip(weights, means, strict=True):
            weight.assign(tf.cast(mean, weight.dtype))


def _tensor(value, averaged=False):
    """Return a value as a tensor; a number of Python, and an integer that is averaged, as float64."""
    value = value if tf.is_tensor(value) else np.asarray(value)
    exact = averaged and not (value.dtype if tf.is_tensor(value) else tf.as_dtype(value.dtype)).is_floating
    return tf.cast(value, tf.float64) if exact else tf.convert_to_tensor(value)


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None,
              compression=Compression.none):
    """Return the mean of a tensor, array or number over all workers, of integers as float64; with `op=Sum` the sum."""
    averaged = op in (None, Average) and average is not False
    return hvd.allreduce(_tensor(value, averaged), average=average, name=name, prescale_factor=prescale_factor,
                         postscale_factor=postscale_factor, op=op, compression=compression)


def allgather(value, name=None):
    """Return the values of all workers, concatenated along the first axis."""
    return hvd.allgather(_tensor(value), name=name)


def broadcast(value, root_rank, name=None):
    """Return the root's value."""
    return hvd.broadcast(_tensor(value), root_rank, name=name)


def reducescatter(value, name=None, op=Average):
    """Return this worker's share, along the first axis, of the mean or sum over all workers."""
    return hvd.reducescatter(_tensor(value, op == Average), name=name, op=op)


def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none, **settings):
    """Load a saved model, with the optimizer's state, and make its optimizer reduce its gradients as before.

    Args:
        custom_optimizers: The user's own optimizer classes that the file may name.
        custom_objects: Other objects that it may name.
        settings: Other arguments of DistributedOptimizer, where they are not to be those of the saved one.
    """
    names = {cls.__name__: cls for cls in custom_optimizers or []} | (custom_objects or {})
    model = tf.keras.models.load_model(filepath, custom_objects=names)
    if model.optimizer is not None and not hasattr(model.optimizer, "horovod"):
        saved = _saved_settings(model.optimizer)
        model.optimizer.name = model.optimizer.name.partition(".horovod")[0]
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression, **saved | settings)
    return model


class _Callback(tf.keras.callbacks.Callback):
    """Compares the workers at the start of `fit`, at the start of each epoch, and at the end.

    The first of these callbacks in a list does it. Keras gives all callbacks of one `fit` the same dictionary `params`,
    so what has been compared stands there.
    """

    def set_model(self, model):
        super().set_model(model)
        optimizer: Any = getattr(model, "optimizer", None)
        if _scales_loss(optimizer) and hasattr(optimizer.inner_optimizer, "horovod"):
            raise ValueError(SCALER_INSIDE)
        # Keras compiles the step after this call. Without a GPU "auto" is False, and True is refused at the first step.
        if model.jit_compile and any(each.device_type != "CPU" for each in tf.config.list_physical_devices()):
            warnings.warn("XLA does not know Horovod's operations: jit_compile is now False", stacklevel=2)
            model.jit_compile = False
        _weigh_batches(model)

    def on_train_begin(self, logs=None):
        if self._is_first("fit"):
            _compare_settings(self.model, self.params)

    def on_epoch_begin(self, epoch, logs=None):
        if self._is_first(f"epoch {epoch + 1}"):
            _compare_weights(self.model, f"the start of epoch {epoch + 1}", self._notes().pop("samples", 0))

    def on_test_begin(self, logs=None):
        self._notes().setdefault("samples", _samples(self.model))  # From here on Keras counts the validation samples.

    def on_epoch_end(self, epoch, logs=None):
        self._notes().setdefault("samples", _samples(self.model))

    def on_train_end(self, logs=None):
        if self._is_first("end"):
            _compare_weights(self.model, "the end of the training", self._notes().pop("samples", 0), offer=True)

    def _is_first(self, moment):
        """Return whether the workers have to be compared at this moment of this `fit`."""
        notes = self._notes()
        first = moment not in notes and size() > 1
        notes[moment] = True
        return first

    def _notes(self):
        self.params: Any = {} if self.params is None else self.params
        return self.params.setdefault("horovod", {})


def _own_train_step(model):
    return type(model).train_step is not tf.keras.Model.train_step


def _compare_settings(model, params):
    """Raise unless all workers exchange gradients, and have the same optimizer, layers, epochs and steps."""
    optimizer, layers = model.optimizer, list(model._flatten_layers())
    trains = model.trainable_variables or not model.built
    if trains and not hasattr(optimizer, "horovod") and not _own_train_step(model):
        raise ValueError(f"the optimizer {type(optimizer).__name__} exchanges no gradients, so each worker would train "
                         "a model of its own: compile with hvd.DistributedOptimizer(optimizer); where it is lost in "
                         "keras.models.load_model, from_config or compile_from_config, use hvd.load_model, or wrap the "
                         "optimizer again")
    for layer in layers:
        if getattr(layer, "synchronized", False):
            raise ValueError(f"the layer {layer.name} has synchronized=True, which only tf.distribute implements: set "
                             "synchronized=False, and call hvd.average_statistics(model) before you save")
    if rank() == 0 and any(getattr(layer, "mask_zero", False) or isinstance(layer, tf.keras.layers.Masking)
                           for layer in layers):
        warnings.warn("this model masks steps, and each worker averages its loss over its own steps that are not "
                      "masked: unless all workers have equally many, the mean over the workers is not that of one "
                      "worker on the whole batch; give all workers sequences of similar lengths", stacklevel=2)
    if hasattr(optimizer, "horovod"):
        optimizer.horovod.reduce.unit.assign(0)
    config = _inner(optimizer).get_config() if optimizer else {}
    # A learning rate that is a number is a variable: it is broadcast, and compared with the others.
    own = {"name", *(["learning_rate"] if not isinstance(config.get("learning_rate"), dict) else [])}
    mine = {"the number of epochs": params.get("epochs"), "the number of steps per epoch": params.get("steps"),
            "the optimizer": type(optimizer).__name__,
            **{f"the optimizer's {key}": json.dumps(value, default=lambda each: type(each).__name__)
               for key, value in config.items() if key not in own},
            "the loss, a mean over samples or not": _is_mean_over_samples(model),
            "the vocabulary or bins of adapted layers": list(filter(None, map(_table, layers))),
            "the shapes of the weights": [tuple(each.shape) for each in model.weights]}
    everyone = _exchange("the start of fit", settings=list(mine.values()), built=model.built)
    compared = list(mine)[:None if all(each["built"] for each in everyone) else -1]  # Unbuilt, it has no weights yet.
    _expect_equal([each["settings"][:len(compared)] for each in everyone], compared, "{}",
                  "give all workers the same model and settings, and as many batches")


def _table(layer):
    """Return a checksum of what a preprocessing layer has learned outside its variables; 0 for another layer."""
    learned = layer.get_vocabulary() if hasattr(layer, "get_vocabulary") else getattr(layer, "bin_boundaries", None)
    return zlib.crc32(repr([str(each) for each in learned]).encode()) if learned else 0


def _compare_weights(model, place, samples, offer=False):
    """Raise unless all workers hold the same weights and optimizer state, bit for bit.

    Args:
        samples: Those of the last epoch. Warn if the workers had different numbers, and the loss is not weighted.
        offer: Warn if moving statistics differ, which are each worker's own.
    """
    optimizer = model.optimizer
    leaves = [each for each in model._flatten_layers() if not list(each._flatten_layers(include_self=False))]
    frozen = [each for layer in leaves if not layer.trainable for each in layer.weights]
    shared = [*model.trainable_weights, *frozen, *(optimizer.variables if optimizer else [])]
    moving = model.non_trainable_weights if offer else []
    everyone = _exchange(place, shared=list(map(_checksum, shared)), samples=samples,
                         moving=list(map(_checksum, moving)), built=model.built)
    if all(each["built"] for each in everyone):  # Otherwise a model is broadcast after the first step.
        _expect_equal([each["shared"] for each in everyone], [_path(each) for each in shared],
                      f"{{}} at {place} (checksums)", "let BroadcastGlobalVariablesCallback(0) be the first callback, "
                      "wrap every optimizer, and set weights, learning rate and other state on all workers, "
                      "or before fit")
    if any(each["moving"] != everyone[0]["moving"] for each in everyone) and rank() == 0:
        warnings.warn("the moving statistics of the workers differ, and a file would hold those of one: call "
                      "hvd.average_statistics(model) on all workers before you save or evaluate", stacklevel=2)
    counts = [each["samples"] for each in everyone]
    if len(set(counts)) > 1 and not _is_mean_over_samples(model) and rank() == 0:
        warnings.warn(f"the workers had {counts} samples in an epoch, and this model's loss is not known to be a mean "
                      "over samples, so all count alike: give all workers batches of equal size", stacklevel=2)


def _samples(model):
    """Return how many samples Keras has counted for the loss since the metrics were reset; 0 if it counts none."""
    tracker = next((each for each in model.metrics if each.name == "loss"), None)
    return float(getattr(tracker, "count", 0.0))


def _checksum(variable):
    return zlib.crc32(np.ascontiguousarray(_tf_variable(variable).numpy()).tobytes())


def _is_mean_over_samples(model):
    """Return whether the loss is Keras' mean over the samples of a batch, so that batches count by their samples."""
    passes = getattr(model.optimizer, "horovod", None)
    losses = [each for each in tf.nest.flatten(getattr(model, "loss", None)) if each is not None]
    return bool(losses) and not _own_train_step(model) and passes is not None and passes.reduce.op == Average and all(
        getattr(each, "reduction", "mean") in ("sum_over_batch_size", "mean") for each in losses)


def _weigh_batches(model):
    """Let each worker's gradient count by the samples of its batch, since batches may differ in size."""
    if _own_train_step(model) or "train_step" in vars(model):
        return
    step = model.train_step

    @functools.wraps(step)
    def train_step(data):
        passes: Any = getattr(model.optimizer, "horovod", None)
        if not _is_mean_over_samples(model) or _alone():  # Another `compile` may have another loss.
            return step(data)
        inputs = tf.keras.utils.unpack_x_y_sample_weight(data)[0]
        passes.weight = passes.reduce.weigh(tf.shape(next(x for x in tf.nest.flatten(inputs) if x is not None))[0])
        try:
            return step(data)
        finally:
            passes.weight = None

    model.train_step = train_step
    _trace_again(model)


def _trace_again(model):
    """Let Keras trace its functions of a model again; a train function that someone else has set stays."""
    if "_make_function" in getattr(model.train_function, "__qualname__", ""):
        model.make_train_function(force=True)
    model.test_function = model.predict_function = None


def _refresh(model):
    """Renew the copies of variables that layers such as Normalization keep, and that traced functions hold."""
    # Discretization has no variables, and would forget the bins of a file.
    layers = [layer for layer in model._flatten_layers() if hasattr(layer, "finalize_state") and layer.weights]
    for layer in layers:
        layer.finalize_state()
    if layers:
        _trace_again(model)


class BroadcastGlobalVariablesCallback(_Callback):
    """Broadcast the root's weights and optimizer state to all workers before the first step of each `fit`.

    If any worker's model is not built by then, the broadcast happens after the first step.
    """

    def __init__(self, root_rank):
        super().__init__()
        self.root_rank, self.broadcast_done = root_rank, False

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        # All workers must decide the same. One may have built its model earlier, for example to load weights.
        everyone = _exchange("the broadcast of the weights", built=self.model.built)
        self.broadcast_done = all(each["built"] for each in everyone)
        if self.broadcast_done:
            self._broadcast()

    def on_train_batch_end(self, batch, logs=None):
        if not self.broadcast_done:
            self._broadcast()
            self.broadcast_done = True

    def _broadcast(self):
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        broadcast_variables([*self.model.weights, *optimizer.variables], self.root_rank)
        _refresh(self.model)


class MetricAverageCallback(_Callback):
    """Replace each epoch's metrics by those of all workers' samples.

    Place it before callbacks that read metrics, such as ReduceLROnPlateau. The states of Keras' metrics are summed over
    the workers, so accuracy, AUC and others are those of one worker with all samples. Other values, such as those that
    a model's own `train_step` or a callback puts into the logs, are averaged; where they differ, a warning names them.
    """

    def __init__(self):
        super().__init__()
        self.trained = None

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self.trained = None

    def on_test_begin(self, logs=None):
        super().on_test_begin(logs)
        if self.trained is None:
            self.trained = self._state()

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if size() == 1 or not logs:
            return
        now = self._state()
        states = {"": now} if self.trained is None else {"": self.trained, "val_": now}
        own = self._results(states)
        computed = {name for name in own if name in logs and np.allclose(own[name], logs[name], 1e-4, equal_nan=True)}
        place = f"the metrics at the end of epoch {epoch + 1}"
        everyone = _exchange(place, logs=logs, computed=computed, states=states)
        _expect_equal([[", ".join(sorted(each["logs"]))] for each in everyone], ["the metrics"], "{}",
                      "give all workers the same metrics, and validation data to all or to none")
        sums = {prefix: [sum(values) for values in zip(*(each["states"][prefix] for each in everyone), strict=True)]
                for prefix in states}
        together = self._results(sums)
        self._assign(now)
        computed = set.intersection(*(each["computed"] for each in everyone))
        for name in logs:
            values = [np.asarray(each["logs"][name], np.float64) for each in everyone]
            mean = together[name] if name in computed else np.mean(values, axis=0)
            logs[name] = np.asarray(mean) if np.ndim(mean) else float(mean)
            if name not in computed and not all(np.array_equal(each, values[0]) for each in values) and rank() == 0:
                warnings.warn(f"{name} is the mean of the workers' values: its state cannot be summed", stacklevel=2)

    def _metrics(self):
        """Return the metrics; Keras has the compiled ones in a container."""
        return [metric for each in self.model.metrics for metric in getattr(each, "metrics", [each])]

    def _state(self):
        """Return the metrics' variables; of a loss per output, of which Keras counts batches, as sums over samples."""
        container, samples = getattr(self.model, "_compile_loss", None), _samples(self.model)
        per_output = {id(each): samples / float(each.count) for each in getattr(container, "metrics", [])
                      if float(each.count)}
        return [np.asarray(_tf_variable(each).numpy(), np.float64) * per_output.get(id(metric), 1)
                for metric in self._metrics() for each in metric.variables]

    def _assign(self, state):
        variables = [_tf_variable(each) for metric in self._metrics() for each in metric.variables]
        for variable, value in zip(variables, state, strict=True):
            variable.assign(tf.cast(value, variable.dtype))

    def _results(self, states):
        """Return the metrics that these states give, by their names in the logs, but not those that are no sums."""
        results: dict[str, Any] = {}
        others = [metric.name for metric in self._metrics() if not _is_sum(metric)]
        for prefix, state in states.items():
            self._assign(state)
            results |= {prefix + name: np.asarray(value) for name, value in self.model.get_metrics_result().items()
                        if not any(name == other or name.endswith(f"_{other}") for other in others)}
        return results


def _is_sum(metric):
    """Return whether a metric's state is a sum over samples: so it is for those of Keras, and their subclasses.

    A metric of another class whose state does not begin at 0, such as a minimum, is not. If it begins at 0, it is taken
    for a sum, with a warning.
    """
    base = tf.keras.metrics.Metric
    if any(each.__module__.startswith("keras.") for each in type(metric).__mro__ if each not in base.__mro__):
        return True
    if type(metric).reset_state is base.reset_state and rank() == 0:
        warnings.warn(f"the state of the metric {metric.name} is summed over the workers, which is right for sums and "
                      "counts", stacklevel=2)
    return type(metric).reset_state is base.reset_state


class LearningRateScheduleCallback(_Callback):
    """Set the learning rate to `initial_lr * multiplier` from `start_epoch` until before `end_epoch`.

    Args:
        initial_lr: The learning rate to multiply.
        multiplier: A number, for exponential decay per epoch, or a function of the epoch.
        start_epoch: The first epoch.
        end_epoch: The epoch after the last; between two epochs, as in 0.5, where `staircase` is False.
        staircase: Set the learning rate once per epoch; otherwise before each step, with a fractional epoch. With
            `steps_per_execution`, before the first step of each execution.
        momentum_correction: Scale the velocity of SGD with the learning rate (Goyal et al. 2017, arXiv 1706.02677).
        steps_per_epoch: Steps per epoch; needed if Keras does not know them and `staircase` is False.
    """

    def __init__(self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True,
                 steps_per_epoch=None):
        super().__init__()
        self.initial_lr, self.start_epoch, self.end_epoch = float(initial_lr), start_epoch, end_epoch
        self.staircase, self.momentum_correction, self.given_steps = staircase, momentum_correction, steps_per_epoch
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.epoch = 0

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.steps_per_epoch = self.given_steps or self.params.get("steps")  # Another fit may have other steps.
        if not self.staircase and not self.steps_per_epoch:
            raise ValueError("Keras does not know the number of steps per epoch: pass steps_per_epoch")

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        position = self.epoch if self.staircase else self.epoch + batch / self.steps_per_epoch
        if position >= self.start_epoch and (self.end_epoch is None or position < self.end_epoch) and (
                batch == 0 or not self.staircase):
            self._set(position)

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch):
        self._set_learning_rate(self.initial_lr * self.multiplier(epoch))

    def _set_learning_rate(self, new):
        optimizer = _inner(self.model.optimizer)
        old = float(optimizer.learning_rate)
        optimizer.learning_rate = new
        if self.momentum_correction and optimizer.built and old > 0 and new != old:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * (new / old))


def _velocities(optimizer):
    """Return the velocities, which must be scaled with the learning rate to correct the momentum.

    In Keras a velocity includes the learning rate. Horovod's own layer changes the momentum for one step. In Keras 3
    the momentum is a constant of the traced step, but scaling the velocities has the same effect.
    """
    if not getattr(optimizer, "momentum", 0):
        return []
    if isinstance(optimizer, tf.keras.optimizers.SGD):
        velocities = optimizer.momentums
    elif isinstance(optimizer, tf.keras.optimizers.RMSprop):
        velocities = optimizer._momentums
    else:
        raise ValueError(f"the velocity of {type(optimizer).__name__} is unknown: pass momentum_correction=False")
    return [velocity for velocity in velocities if velocity is not None]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raise the learning rate over `warmup_epochs` from `initial_lr / size` to `initial_lr`, step by step."""

    def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0):
        def multiplier(epoch):
            # The last step of an epoch has the learning rate of the end of that epoch.
            epoch = min(epoch + 1 / self.steps_per_epoch, warmup_epochs)
            return (epoch * (size() - 1) / warmup_epochs + 1) / size()

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose, self.rising = verbose, False

    def on_train_batch_begin(self, batch, logs=None):
        position = self.epoch + batch / self.steps_per_epoch
        if position < self.end_epoch:
            self.rising = True
            self._set(position)
        else:
            self._finish()

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 >= self.end_epoch:
            self._finish()
        super().on_epoch_end(epoch, logs)

    def _finish(self):
        """Set the final learning rate once: later it belongs to others, such as ReduceLROnPlateau."""
        if self.rising:
            self.rising = False
            self._set_learning_rate(self.initial_lr)
            if self.verbose and rank() == 0:
                print(f"\nEpoch {self.epoch + 1}: finished gradual learning rate warmup to {self.initial_lr:g}.")


class KerasState(ObjectState):
    """State of an elastic job: model, optimizer, and other values, which become attributes.

    Args:
        model: A built model.
        optimizer: Its optimizer, if it is not compiled into the model.
        kwargs: Other values, which every worker gets from rank 0.
    """

    def __init__(self, model, optimizer=None, **kwargs):
        if not model.built:
            raise ValueError("the model has no variables yet: call model.build(input_shape) first")
        self.model = model
        self.optimizer: Any = optimizer or getattr(model, "optimizer", None)
        if self.optimizer is None:
            raise ValueError("pass the optimizer, or compile the model")
        if not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        self._save_variables()
        super().__init__(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, **kwargs)

    def save(self):
        self._save_variables()
        super().save()

    def restore(self):
        for variable, value in zip(self._variables(), self.values, strict=True):
            variable.assign(value)
        self._forget_passes()
        super().restore()

    def sync(self):
        broadcast_variables(self._variables(), 0)
        _refresh(self.model)
        self._forget_passes()
        self._save_variables()
        super().sync()

    def _variables(self):
        return [*self.model.weights, *self.optimizer.variables]

    def _save_variables(self):
        self.values = [tf.identity(_tf_variable(each)) for each in self._variables()]

    def _forget_passes(self):
        """Discard unfinished sums: a new worker starts at the first pass, so all workers must."""
        if hasattr(self.optimizer, "horovod"):
            self.optimizer.horovod.reset()


def run(func):
    """Return a training function that continues from the last commit when workers are lost or join.

    Horovod's own decorator recognises only some errors of its operations. On the others it returns as if training had
    finished. The function takes a state, such as KerasState, and other arguments.
    """
    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        try:
            return func(state, *args, **kwargs)
        except tf.errors.OpError as error:
            if "Horovod" in str(error):
                raise HorovodInternalError(error) from error
            raise

    return run_fn(wrapper, _restart)


def _restart():
    shutdown()
    init()


class CommitStateCallback(_Callback):
    """Commit the state every `batches_per_commit` batches, and after each epoch."""

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        self.state, self.batches_per_commit, self.remaining = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.remaining = self.batches_per_commit

    def on_train_batch_end(self, batch, logs=None):
        self.remaining -= 1
        if self.remaining == 0:
            self.commit()
            self.remaining = self.batches_per_commit

    def on_epoch_end(self, epoch, logs=None):
        self.commit()

    def commit(self):
        self.state.commit()


class UpdateBatchStateCallback(_Callback):
    """Count the epoch's finished batches in `state.batch`; shorten the first epoch after a reset by that number.

    Horovod's own callback keeps the index of the last batch, which is one less, and so repeats that batch.

    Put it before callbacks that stop the training, such as EarlyStopping.
    """

    def __init__(self, state):
        super().__init__()
        self.state, self.first, self.ended = state, 0, False

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self.first, self.ended = self.state.batch, False

    def on_train_batch_end(self, batch, logs=None):
        self.state.batch = self.first + batch + 1
        steps = self.params.get("steps")
        if self.first and steps and self.state.batch >= steps and not self.model.stop_training:
            self.model.stop_training = self.ended = True  # Ends this epoch.

    def on_epoch_end(self, epoch, logs=None):
        self.state.batch = 0
        if self.ended:
            self.model.stop_training = False


class UpdateEpochStateCallback(_Callback):
    """Count the finished epochs in `state.epoch`, across resets."""

    def __init__(self, state):
        super().__init__()
        self.state, self.first = state, state.epoch

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.first = self.state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self.state.epoch = self.first + epoch + 1


callbacks = types.SimpleNamespace(
    BroadcastGlobalVariablesCallback=BroadcastGlobalVariablesCallback, MetricAverageCallback=MetricAverageCallback,
    LearningRateScheduleCallback=LearningRateScheduleCallback, LearningRateWarmupCallback=LearningRateWarmupCallback,
)
elastic = types.SimpleNamespace(
    run=run, KerasState=KerasState, CommitStateCallback=CommitStateCallback,
    UpdateBatchStateCallback=UpdateBatchStateCallback, UpdateEpochStateCallback=UpdateEpochStateCallback,
)
