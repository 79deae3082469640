"""Horovod for Keras 3: the optimizer, callbacks and elastic state of `horovod.tensorflow.keras`, in one file.

Horovod 0.28.1 has a Keras layer for Keras 2. On Keras 3 its DistributedOptimizer trains without an error but never
exchanges a gradient, and its callbacks raise. This file replaces that layer. It needs only TensorFlow, Keras 3 and
Horovod: install it (README.md), or copy it beside your script.

    import horovod_keras3 as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(optimizer), loss, jit_compile=False)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Names and arguments are those of `horovod.tensorflow.keras`. What differs:

- `DistributedOptimizer` changes the optimizer that it is given, and returns it. The class, config, variables and saved
  file stay Keras' own, so `keras.models.load_model` can open the file without Horovod.
- Under the policy "mixed_float16" it puts a LossScaleOptimizer around the optimizer before it distributes it. `compile`
  would put one outside, where an overflow on one worker would leave the others waiting.
- An update counts as one step for Adam's bias correction, schedules and EMA, whatever `backward_passes_per_step` is.
  Between updates `optimizer.iterations` counts passes, as Horovod's own layer does: a schedule that is read there is
  ahead, and a saved optimizer must continue with the same `backward_passes_per_step`.
- Gradients of less than SMALL_BYTES altogether are exchanged as one group.
- Metrics are averaged over all samples, not over workers. Broadcasts leave out the states of random generators, because
  dropout must differ between workers.

Unsupported uses raise an error that states the cause and a fix; README.md lists them. Under `jit_compile="auto"`, where
there is a GPU, the broadcast callback sets `jit_compile` to False, with a warning: XLA does not know Horovod's
operations.
"""

from __future__ import annotations

import functools
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
from horovod.common.util import split_list
from horovod.tensorflow import (  # noqa: F401
    Average,
    Compression,
    ProcessSet,
    Sum,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
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
_labels: Counter = Counter()
"""How many optimizers have reduced gradients under each label, by the members of their process set."""


def DistributedOptimizer(  # noqa: N802
    optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False,
    gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, average_aggregated_gradients=False,
    num_groups=0, groups=None, process_set=global_process_set, scale_local_gradients=True,
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
        gradient_predivide_factor: Divide by this before the sum, and by size / this after it.
        op: Average or Sum.
        backward_passes_per_step: Passes whose gradients are added up before workers exchange them.
        average_aggregated_gradients: Divide that sum by the number of passes.
        num_groups: Deprecated: use `groups`.
        groups: Number of groups, or lists of variables, whose gradients are reduced together. By default each gradient
            is reduced as soon as it is computed; in eager mode all are reduced together.
        process_set: The workers that exchange gradients.
        scale_local_gradients: Divide the gradients of variables given to `register_local_var` by the number of workers.

    Raises:
        TypeError: The optimizer is not one of Keras 3.
        ValueError: Arguments that Horovod or Keras 3 cannot combine.
    """
    groups = num_groups or None if groups is None else groups
    _check(optimizer, op, gradient_predivide_factor, groups, backward_passes_per_step, process_set)
    label = name or f"Distributed{type(_inner(optimizer)).__name__}"
    if tf.keras.mixed_precision.dtype_policy().name == "mixed_float16" and not _scales_loss(optimizer):
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
    reduce = _Reduction(label, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
                        groups, process_set, scale_local_gradients)
    optimizer.horovod = _Passes(reduce, backward_passes_per_step, average_aggregated_gradients)
    optimizer.apply = types.MethodType(_reduce_then_apply, optimizer)
    optimizer.register_local_var = functools.partial(_register_local_var, optimizer)
    return optimizer


@tf.autograph.experimental.do_not_convert
def _reduce_then_apply(optimizer, grads, trainable_variables=None):
    """Reduce the gradients, then apply them: the `apply` of a distributed optimizer."""
    _refuse_context()
    variables = _variables(optimizer, trainable_variables)
    apply_of_keras = functools.partial(
        type(optimizer).apply, optimizer, trainable_variables=variables)
    passes = optimizer.horovod
    if passes.per_step == 1:
        apply_of_keras(passes.reduce(grads, variables))
    else:
        passes.add(optimizer, grads, variables, apply_of_keras)


class _Reduction:
    """Reduces gradients over all workers: a call takes and returns a list of gradients."""

    def __init__(self, label, device_dense, device_sparse, compression, sparse_as_dense, predivide, op, groups,
                 process_set, scale_local_gradients):
        self.label, self.sparse_as_dense, self.groups = label, sparse_as_dense, groups
        self.device_sparse, self.op, self.process_set = device_sparse, op, process_set
        # With op=Average Horovod also divides by the number of workers.
        self.dense = {"device_dense": device_dense, "compression": compression, "op": op, "process_set": process_set,
                      "prescale_factor": 1 / predivide, "postscale_factor": predivide, "ignore_name_scope": True}
        self.scale_local_gradients, self.local, self.unique = scale_local_gradients, set(), ""

    def __call__(self, grads, variables):
        local = [_tf_variable(each).ref() in self.local for each in variables]
        # A gradient may also be a variable, as in an accumulation loop, or an array.
        grads = [grad if grad is None or _is_sparse(grad) else tf.convert_to_tensor(grad) for grad in grads]
        if self.sparse_as_dense:
            grads = [tf.convert_to_tensor(grad) if _is_sparse(grad) else grad for grad in grads]
        if self._alone():
            return grads
        self.unique = self.unique or self._unique(variables)
        for index, grad in enumerate(grads):
            if grad is not None and local[index]:
                grads[index] = _divided(grad, self._size()) if self.scale_local_gradients else grad
            elif _is_sparse(grad):
                grads[index] = self._gather(grad, index)
        dense = [index for index, grad in enumerate(grads) if isinstance(grad, tf.Tensor) and not local[index]]
        for number, group in enumerate(self._groups(dense, grads, variables)):
            name = self._name("HorovodAllreduce", number)
            together = [grads[index] for index in group]
            reduced = hvd.grouped_allreduce(together, name=name, **self.dense) if len(group) > 1 else [
                hvd.allreduce(together[0], name=name, **self.dense)]
            for index, grad in zip(group, reduced, strict=True):
                grads[index] = grad
        return grads

    def _gather(self, grad, index):
        """Return the sum or mean of a sparse gradient: the rows of all workers, concatenated."""
        gather = functools.partial(hvd.allgather, process_set=self.process_set, ignore_name_scope=True)
        with tf.device(self.device_sparse):
            rows = gather(grad.values, name=self._name("HorovodAllgather", index) + "_values")
            indices = gather(grad.indices, name=self._name("HorovodAllgather", index) + "_indices")
            total = tf.IndexedSlices(rows, indices, grad.dense_shape)
            return _divided(total, self._size()) if self.op == Average else total

    def _groups(self, dense, grads, variables):
        """Return the groups of dense gradients that are reduced together, as lists of indices; each has one dtype.

        By default each gradient is a group: it is exchanged as soon as it is computed, while backpropagation goes on in
        the earlier layers. Horovod fuses small gradients into one message. Gradients of less than SMALL_BYTES in all
        are one group: there is little to overlap, and two messages take two of Horovod's cycles. In eager mode each
        exchange would wait for the one before it, so all gradients are one group.
        """
        nbytes = sum(_tf_variable(variables[index]).shape.num_elements() * grads[index].dtype.size for index in dense)
        if isinstance(self.groups, list):
            index_of = {_tf_variable(variables[index]).ref(): index for index in dense}
            groups = [[index_of.pop(ref) for each in group if (ref := _tf_variable(each).ref()) in index_of]
                      for group in self.groups]
            groups += [[index] for index in index_of.values()]
        elif self.groups:
            groups = split_list(dense, self.groups)
        elif tf.executing_eagerly() or nbytes < SMALL_BYTES:
            groups = [dense]
        else:
            groups = [[index] for index in dense]
        return [same for group in groups for dtype in dict.fromkeys(grads[index].dtype for index in group)
                if (same := [index for index in group if grads[index].dtype == dtype])]

    def _unique(self, variables):
        """Return the part of the operations' names that tells this optimizer from others, on all workers alike.

        The default names contain those of Keras' layers, which differ if one worker builds one more model. So the
        optimizers of one label are numbered. One gets its number when it first reduces, which happens on all workers of
        its process set, and not when it is wrapped, which one worker may do alone. A worker that joins an elastic job
        does not know how many came before it: there the shapes of the variables take the number's place.
        """
        label, members = re.sub("[^a-zA-Z0-9_]", "_", self.label), tuple(self.process_set.ranks or ())
        if _elastic():
            shapes = repr([tuple(each.shape) for each in variables])
            return f"{label}_{zlib.crc32(shapes.encode()):08x}"
        if self.process_set.process_set_id:
            label += f"_set{self.process_set.process_set_id}"
        earlier = _labels[label, members]
        _labels[label, members] += 1
        return f"{label}_{earlier}" if earlier else label

    def _name(self, operation, number):
        """Return an operation's name, by which Horovod matches it with the same operation on the other workers.

        Horovod's elastic mode recognises its errors by "HorovodAllreduce".
        """
        return f"{operation}_{self.unique}_{number}"

    def _alone(self):
        """Return whether there is nothing to exchange; False in an elastic job, whose size may change after tracing."""
        return not _elastic() and (not self.process_set.included() or self.process_set.size() == 1)

    def _size(self):
        return hvd.size_op() if _elastic() else self.process_set.size()


class _Passes:
    """Adds up the gradients of several passes; the last of them reduces the sums and updates the variables."""

    def __init__(self, reduce, per_step, average):
        self.reduce, self.per_step, self.average = reduce, per_step, average
        self.counter: Any = tf.Variable(0, trainable=False) if per_step > 1 else None
        self.sums: dict[Any, tf.Variable] = {}
        self.sets: dict[frozenset, int] = {}  # Numbers the sets of variables that passes had gradients of.
        self.current: Any = tf.Variable(0, trainable=False) if per_step > 1 else None

    def add(self, optimizer, grads, variables, update):
        """Add the gradients of one pass; in the last pass call `update` with the reduced sums."""
        if self.reduce.sparse_as_dense:
            grads = [tf.convert_to_tensor(grad) if _is_sparse(grad) else grad for grad in grads]
        if any(map(_is_sparse, grads)):
            raise ValueError("backward_passes_per_step adds up dense gradients only: set sparse_as_dense=True")
        self._create(optimizer, grads, variables)
        sums = [None if grad is None else self.sums[_tf_variable(variable).ref()]
                for grad, variable in zip(grads, variables, strict=True)]
        with tf.control_dependencies([self._expect_same_variables(grads, variables)]):
            for total, grad in zip(sums, grads, strict=True):
                if total is not None:
                    total.assign_add(grad)
            self.counter.assign_add(1)
        tf.cond(self.counter >= self.per_step, functools.partial(self._update, optimizer, sums, variables, update),
                functools.partial(_count, optimizer))

    def reset(self):
        """Forget the passes since the last update."""
        if self.counter is not None:
            self.counter.assign(0)
        for total in self.sums.values():
            total.assign(tf.zeros_like(total))

    def _update(self, optimizer, sums, variables, update):
        grads = self.reduce([None if total is None else total.read_value() for total in sums], variables)
        if self.average:
            grads = [None if grad is None else grad / self.per_step for grad in grads]
        # Adam's bias correction, schedules and EMA use this number: for them an update is one step. After a restore in
        # the middle of the passes it also counts the forgotten ones, fewer than an update has.
        optimizer.iterations.assign(tf.maximum((optimizer.iterations + 1) // self.per_step - 1, 0))
        update(grads)
        optimizer.iterations.assign(optimizer.iterations * self.per_step)
        self.reset()
        return tf.identity(optimizer.iterations.value)

    def _expect_same_variables(self, grads, variables):
        """Return an assertion that all passes of an update have gradients of the same variables.

        The update applies the gradients of the last pass; the sums of other variables would be lost.
        """
        refs = frozenset(_tf_variable(variable).ref() for grad, variable in zip(grads, variables, strict=True)
                         if grad is not None)
        number = self.sets.setdefault(refs, len(self.sets))
        self.current.assign(tf.where(self.counter == 0, number, self.current))
        return tf.debugging.assert_equal(
            self.current, number, "the passes of one update have gradients of different variables: apply all gradients "
                                  "in each pass, or set backward_passes_per_step=1")

    def _create(self, optimizer, grads, variables):
        """Create the sums outside the graph that is being traced, since a variable is created only once."""
        with tf.init_scope():
            if not optimizer.built:
                optimizer.build(variables)
        for grad, variable in zip(grads, variables, strict=True):
            key, (shape, dtype) = _tf_variable(variable).ref(), (variable.shape, getattr(grad, "dtype", None))
            if grad is not None and key not in self.sums:
                with tf.init_scope():
                    self.sums[key] = tf.Variable(tf.zeros(shape, dtype), trainable=False)


def _count(optimizer):
    optimizer.iterations.assign_add(1)
    return tf.identity(optimizer.iterations.value)


def _register_local_var(optimizer, var):
    """Do not exchange a variable's gradient: each worker applies its own."""
    if _scales_loss(optimizer):
        raise ValueError("a LossScaleOptimizer would leave out the step only on the worker whose local gradient "
                         "overflows: train local variables in float32 or bfloat16")
    if getattr(optimizer, "global_clipnorm", None):
        raise ValueError("global_clipnorm would scale all gradients by a norm that includes this worker's local ones: "
                         "use clipnorm or clipvalue, which clip each gradient by itself")
    optimizer.horovod.reduce.local.add(_tf_variable(var).ref())


def _variables(optimizer, given):
    """Return the variables of the gradients: those given, or the optimizer's, as in Keras' own `apply`."""
    if given is None and not optimizer.built:
        raise ValueError("apply(grads) needs a built optimizer: call optimizer.build(variables), or pass the variables")
    return list(optimizer._trainable_variables if given is None else given)


def _tf_variable(variable):
    return variable.value if isinstance(variable, tf.keras.Variable) else variable


def _is_sparse(grad):
    return isinstance(grad, tf.IndexedSlices)


def _divided(grad, number):
    if _is_sparse(grad):
        return tf.IndexedSlices(grad.values / tf.cast(number, grad.dtype), grad.indices, grad.dense_shape)
    return grad / tf.cast(number, grad.dtype)


def _elastic():
    return os.environ.get("HOROVOD_ELASTIC") == "1"


def _scales_loss(optimizer):
    return isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)


def _inner(optimizer):
    return optimizer.inner_optimizer if _scales_loss(optimizer) else optimizer


def _check(optimizer, op, gradient_predivide_factor, groups, backward_passes_per_step, process_set):
    """Raise on arguments that Horovod or Keras 3 cannot combine."""
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise TypeError(f"DistributedOptimizer takes an optimizer of Keras 3, not {optimizer!r}: make one with "
                        "tf.keras.optimizers; for a name such as 'adam' with tf.keras.optimizers.get")
    if hasattr(optimizer, "horovod"):
        raise ValueError("this optimizer already reduces its gradients: call DistributedOptimizer once")
    inner = _inner(optimizer)
    if hasattr(inner, "horovod"):
        raise ValueError("put the LossScaleOptimizer inside: DistributedOptimizer(LossScaleOptimizer(optimizer))")
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise ValueError("Keras 3 does not train in a TensorFlow 1 graph: remove disable_eager_execution()")
    if op not in (Average, Sum):
        raise ValueError("op must be Average or Sum: this optimizer has no other reduction")
    if gradient_predivide_factor != 1 and (op != Average or rocm_built()):
        raise ValueError("gradient_predivide_factor works with op=Average, and not on ROCm")
    if groups is not None and not isinstance(groups, list) and not groups > 0:
        raise ValueError("groups must be a positive number, or a list of lists of variables")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be at least 1")
    if backward_passes_per_step > 1 and getattr(inner, "gradient_accumulation_steps", None):
        raise ValueError("gradient_accumulation_steps and backward_passes_per_step both add up gradients: choose one; "
                         "with the latter workers communicate only once per step")
    if process_set is not global_process_set and _elastic():
        raise ValueError("an elastic job has one process set: leave out process_set")


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


def PartialDistributedOptimizer(optimizer, *args, local_layers=None, **kwargs):  # noqa: N802
    """Make an optimizer reduce all gradients except those of local layers, and return it.

    Args:
        optimizer: A Keras 3 optimizer.
        args: As for DistributedOptimizer.
        local_layers: One or several built layers, whose variables each worker trains by itself.
        kwargs: As for DistributedOptimizer.
    """
    layers = [local_layers] if isinstance(local_layers, tf.keras.layers.Layer) else list(local_layers or [])
    if not all(isinstance(layer, tf.keras.layers.Layer) for layer in layers):
        raise ValueError("local_layers must be Keras layers")
    optimizer = DistributedOptimizer(optimizer, *args, **kwargs)
    for layer in layers:
        for variable in layer.trainable_variables:
            optimizer.register_local_var(variable)
    return optimizer


def broadcast_variables(variables, root_rank):
    """Broadcast the values of the root's variables to all workers.

    Args:
        variables: Variables of Keras or TensorFlow, in the same order on all workers.
        root_rank: The worker that sends.
    """
    refs = tuple(_tf_variable(each).ref() for each in variables)
    if refs:
        _broadcast_function(refs, root_rank)()


@functools.lru_cache(maxsize=1)  # An elastic job broadcasts the same variables at each reset.
def _broadcast_function(refs, root_rank):
    def broadcast_all():
        # The default names would be those of Keras' layers, which differ if one worker builds one more model.
        for index, ref in enumerate(refs):
            ref.deref().assign(hvd.broadcast(ref.deref(), root_rank, name=f"HorovodBroadcast_{index}",
                                             ignore_name_scope=True))

    return tf.function(broadcast_all, autograph=False)


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None,
              compression=Compression.none):
    """Return the mean of a tensor, array or number over all workers; with `op=Sum` the sum."""
    return hvd.allreduce(tf.convert_to_tensor(value), average=average, name=name, prescale_factor=prescale_factor,
                         postscale_factor=postscale_factor, op=op, compression=compression)


def allgather(value, name=None):
    """Return the values of all workers, concatenated along the first axis."""
    return hvd.allgather(tf.convert_to_tensor(value), name=name)


def broadcast(value, root_rank, name=None):
    """Return the root's value."""
    return hvd.broadcast(tf.convert_to_tensor(value), root_rank, name=name)


def reducescatter(value, name=None, op=Average):
    """Return this worker's share, along the first axis, of the mean or sum over all workers."""
    return hvd.reducescatter(tf.convert_to_tensor(value), name=name, op=op)


def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none):
    """Load a saved model, with the optimizer's state, and make its optimizer reduce its gradients.

    Args:
        filepath: The file.
        custom_optimizers: The user's own optimizer classes that the file may name.
        custom_objects: Other objects that it may name.
        compression: As for DistributedOptimizer.
    """
    names = {cls.__name__: cls for cls in custom_optimizers or []} | (custom_objects or {})
    model = tf.keras.models.load_model(filepath, custom_objects=names)
    if model.optimizer is not None and not hasattr(model.optimizer, "horovod"):
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Broadcast the root's weights and optimizer state to all workers before the first step.

    If any worker's model is not built by then, the broadcast happens after the first step.

    Args:
        root_rank: The worker that sends.
        device: Device on which variables are broadcast.
        local_variables: One or several variables that are not broadcast.
    """

    def __init__(self, root_rank, device="", local_variables=None):
        super().__init__()
        self.root_rank, self.device, self.broadcast_done, self.local = root_rank, device, False, set()
        one = isinstance(local_variables, tf.Variable | tf.keras.Variable)
        for variable in [local_variables] if one else local_variables or []:
            self.register_local_var(variable)

    def register_local_var(self, var):
        """Do not broadcast a variable: each worker keeps its own value."""
        self.local.add(_tf_variable(var).ref())

    def set_model(self, model):
        super().set_model(model)
        optimizer: Any = getattr(model, "optimizer", None)
        if _scales_loss(optimizer) and hasattr(optimizer.inner_optimizer, "horovod"):
            raise ValueError("put the LossScaleOptimizer inside: DistributedOptimizer(LossScaleOptimizer(optimizer))")
        # Keras compiles the step after this call. Without a GPU "auto" is False, and True is refused at the first step.
        if model.jit_compile and any(each.device_type != "CPU" for each in tf.config.list_physical_devices()):
            warnings.warn("XLA does not know Horovod's operations: jit_compile is now False", stacklevel=2)
            model.jit_compile = False

    def on_train_begin(self, logs=None):
        # All workers must decide the same. One may have built its model earlier, for example to load weights; one that
        # joins an elastic job has not broadcast yet.
        mine = tf.constant([int(self.model.built), int(self.broadcast_done)])
        built, done = hvd.allreduce(mine, op=hvd.Min, name="HorovodAllreduce_built").numpy()
        self.broadcast_done = bool(done)
        if built and not done:
            self._broadcast()

    def on_train_batch_end(self, batch, logs=None):
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self):
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        variables = [each for each in [*self.model.weights, *optimizer.variables]
                     if _tf_variable(each).ref() not in self.local]
        with tf.device(self.device):
            broadcast_variables(variables, self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Replace each epoch's metrics by their mean over all workers' samples.

    Place it before callbacks that read metrics, such as ReduceLROnPlateau. The number of samples is the one that Keras
    counts for the loss. Where it counts none, as for a model whose own `train_step` does not update that metric, the
    result is the mean over the workers.

    Args:
        device: Device on which the sums are exchanged.
    """

    def __init__(self, device=""):
        super().__init__()
        self.device, self.trained = device, None

    def on_test_begin(self, logs=None):
        self.trained = self._samples()  # From here on Keras counts the validation samples.

    def on_epoch_begin(self, epoch, logs=None):
        self.trained = None

    def on_epoch_end(self, epoch, logs=None):
        counted = self._samples()
        trained = counted if self.trained is None else self.trained
        names = sorted(logs or {})
        values = [np.asarray(logs[name], np.float64) for name in names]  # F1Score has a value per class.
        columns = [_sums(value.ravel(), counted if name.startswith("val_") else trained)
                   for name, value in zip(names, values, strict=True)]
        with tf.device(self.device):
            totals = hvd.allreduce(tf.concat([np.empty((3, 0)), *columns], axis=1), op=Sum,
                                   name="HorovodAllreduce_metrics")
        weighted, samples, plain = totals.numpy()
        means = np.where(samples > 0, weighted / np.where(samples > 0, samples, 1), plain / size())
        ends = np.cumsum([value.size for value in values])
        for name, value, end in zip(names, values, ends, strict=True):
            mean = means[end - value.size:end].reshape(value.shape)
            logs[name] = mean if value.ndim else float(mean)

    def _samples(self):
        tracker = next((each for each in self.model.metrics if each.name == "loss"), None)
        count = getattr(tracker, "count", None)
        return 1.0 if count is None else float(count)


def _sums(values, count):
    """Return what is summed over the workers for values of a metric: them times the samples, the samples, and them."""
    weighted = values * count if count else np.zeros_like(values)  # A worker without samples has no mean.
    return np.stack([weighted, np.full_like(values, count), values])


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    """Set the learning rate to `initial_lr * multiplier` from `start_epoch` until before `end_epoch`.

    Args:
        initial_lr: The learning rate to multiply.
        multiplier: A number, for exponential decay per epoch, or a function of the epoch.
        start_epoch: The first epoch.
        end_epoch: The epoch after the last.
        staircase: Set the learning rate once per epoch; otherwise before each step, with a fractional epoch.
        momentum_correction: Scale the velocity of SGD with the learning rate (Goyal et al. 2017, arXiv 1706.02677).
        steps_per_epoch: Steps per epoch; needed if Keras does not know them and `staircase` is False.
    """

    def __init__(self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True,
                 steps_per_epoch=None):
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is required")
        self.initial_lr, self.start_epoch, self.end_epoch = float(initial_lr), start_epoch, end_epoch
        self.staircase, self.momentum_correction, self.steps_per_epoch = staircase, momentum_correction, steps_per_epoch
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.epoch = 0

    def on_train_begin(self, logs=None):
        self.steps_per_epoch = self.steps_per_epoch or self.params.get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ValueError("Keras does not know the number of steps per epoch: pass steps_per_epoch")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.epoch < self.start_epoch or (self.end_epoch is not None and self.epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set(self.epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set(self.epoch)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch):
        optimizer = _inner(self.model.optimizer)
        old, new = float(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
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
    """Raise the learning rate over `warmup_epochs` from `initial_lr / size` to `initial_lr`, step by step.

    Args:
        initial_lr: The learning rate after the warmup.
        warmup_epochs: The length of the warmup.
        momentum_correction: As for LearningRateScheduleCallback.
        steps_per_epoch: As for LearningRateScheduleCallback.
        verbose: 1 to print a line when the warmup ends.
    """

    def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0):
        def multiplier(epoch):
            # The last step of an epoch has the learning rate of the end of that epoch.
            epoch += 1 / self.steps_per_epoch
            return (epoch * (size() - 1) / warmup_epochs + 1) / size()

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose and rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to "
                  f"{float(self.model.optimizer.learning_rate):g}.")


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """Save the best model to the attribute `filepath`, which must be set before training; arguments as in Keras."""

    def __init__(self, monitor="val_loss", verbose=0, save_weights_only=False, mode="auto", save_freq="epoch"):
        suffix = ".weights.h5" if save_weights_only else ".keras"
        super().__init__("unset" + suffix, monitor, verbose, True, save_weights_only, mode, save_freq)
        self.filepath = None

    def on_train_begin(self, logs=None):
        if self.filepath is None:
            raise ValueError("set this callback's filepath before training")
        super().on_train_begin(logs)


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
    finished.

    Args:
        func: Takes a state, such as KerasState, and other arguments.
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


class CommitStateCallback(tf.keras.callbacks.Callback):
    """Commit the state every `batches_per_commit` batches, and after each epoch.

    Args:
        state: The state.
        batches_per_commit: Batches between two commits.
    """

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        self.state, self.batches_per_commit, self.remaining = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs=None):
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


class UpdateBatchStateCallback(tf.keras.callbacks.Callback):
    """Count the epoch's finished batches in `state.batch`; shorten the first epoch after a reset by that number.

    Horovod's own callback keeps the index of the last batch, which is one less, and so repeats that batch.

    Put it before callbacks that stop the training, such as EarlyStopping.

    Args:
        state: A state with `batch`.
    """

    def __init__(self, state):
        super().__init__()
        self.state, self.first, self.ended = state, 0, False

    def on_epoch_begin(self, epoch, logs=None):
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


class UpdateEpochStateCallback(tf.keras.callbacks.Callback):
    """Count the finished epochs in `state.epoch`, across resets.

    Args:
        state: A state with `epoch`.
    """

    def __init__(self, state):
        super().__init__()
        self.state, self.first = state, state.epoch

    def on_train_begin(self, logs=None):
        self.first = self.state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self.state.epoch = self.first + epoch + 1


callbacks = types.SimpleNamespace(
    BroadcastGlobalVariablesCallback=BroadcastGlobalVariablesCallback, MetricAverageCallback=MetricAverageCallback,
    LearningRateScheduleCallback=LearningRateScheduleCallback, LearningRateWarmupCallback=LearningRateWarmupCallback,
    BestModelCheckpoint=BestModelCheckpoint,
)
elastic = types.SimpleNamespace(
    run=run, KerasState=KerasState, CommitStateCallback=CommitStateCallback,
    UpdateBatchStateCallback=UpdateBatchStateCallback, UpdateEpochStateCallback=UpdateEpochStateCallback,
)
