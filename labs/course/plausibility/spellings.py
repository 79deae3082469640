"""Words of column names: units, synonyms, fillers, and the names that students give to each of the rules' columns."""

from __future__ import annotations


def _by_word(groups: dict[str, str]) -> dict[str, str]:
    """Return the group of each word."""
    return {word: group for group, words in groups.items() for word in words.split()}


TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
"""Units of time, in seconds."""

TIME_WORDS = _by_word({
    "s": "s sec secs second seconds sek sekunde sekunden",
    "ms": "ms msec msecs millisecond milliseconds",
    "us": "us µs μs usec microsecond microseconds",
    "ns": "ns nanosecond nanoseconds",
    "min": "min mins minute minutes minuten",
    "h": "h hr hrs hour hours stunde stunden",
})

SAME = _by_word({
    "worker": "workers gpu gpus process processes procs proc ranks rank devices tasks ntasks task "
              "processen prozesse karten grafikkarten",
    "cores": "core cpu cpus",
    "node": "nodes hosts servers machines knoten",
    "time": "duration runtime walltime zeit dauer laufzeit elapsed second seconds sec secs",
    "train": "training trained fit trainings",
    "epoch": "epoche epochen ep",
    "step": "iteration iter it update schritt",
    "steps": "iterations iters updates",
    "image": "images img imgs sample samples example examples pictures bilder pics ims im",
    "throughput": "durchsatz thruput tput",
    "speedup": "beschleunigung acceleration accel speedups",
    "efficiency": "eff effizienz",
    "accuracy": "acc genauigkeit accuracies",
    "test": "val validation valid eval evaluation dev",
    "learning": "lernrate",
    "communication": "comm comms communicate allreduce kommunikation communications",
    "compute": "computation comp computing calculation rechenzeit calc",
    "input": "loader dataloader loading",
    "other": "rest residual remaining",
    "bandwidth": "bw bandbreite",
    "busbw": "busbandwidth busbandbreite",
    "algbw": "algobw",
    "alg": "algorithm algo",
    "batch": "batchsize minibatch bs batches batchgröße batchgroesse",
    "global": "effective gesamt aggregate overall",
    "gradient": "gradients grad grads",
    "parameters": "params param parameter",
    "message": "msg buffer tensor payload",
    "one": "single sequential serial",
    "vs": "versus over against relative rel",
    "utilization": "util utilisation usage load auslastung",
    "spread": "std sd stdev stddev stderr sem deviation ci ci95 interval error err low high lower upper variance "
              "halfwidth plusminus conf confidence uncertainty iqr",
    "predicted": "ideal linear theoretical theory expected prediction amdahl gustafson perfect target reference "
                 "published paper literature minimum maximum max worst limit simulated estimated normalized normalised",
    "scaling": "skalierung",
})
"""Synonyms: word -> the word that stands for it in `MEANINGS`."""

FILLERS = {
    "of", "the", "a", "an", "in", "per", "by", "for", "and", "mean", "average", "avg", "median", "measured",
    "as", "reported", "my", "our", "own", "observed", "actual", "real", "number", "num", "no", "nr", "count",
    "anzahl", "used", "all", "result", "results", "value", "final", "best", "wall", "wallclock", "execution",
    "job", "logged", "amount", "taken", "took", "each", "every", "run", "spent", "is", "was",
    "steady", "achieved", "reached", "sustained", "state", "end",
}
"""Words that change nothing: "average time per epoch" is the epoch time. Digits do: "time 1" is one of several runs."""

MEANINGS = {
    "size": "n? size? total? mpi? horovod? parallel? global? workers; n; p; np; world? size",
    "cores": "n? cores",
    "nodes": "n? compute? total? nodes",
    "processes_per_node": "n? workers node; local size",
    "threads": "threads worker?; n? omp? threads; intra op threads",
    "batch_size": "mini? batch size?",
    "worker_batch_size": "batch size? worker; local batch size?",
    "global_batch_size": "global batch size?; total batch size?",
    "learning_rate": "scaled? initial? peak? lr; scaled? initial? peak? learning rate?; eta",
    "base_lr": "base lr; base learning rate",
    "images_per_sec": "train? total? global? throughput image? time?; train? total? global? image time; image rate; "
                      "train? speed image; fps; ips",
    "worker_images_per_sec": "throughput image? worker; image time worker; image rate worker",
    "epoch_seconds": "t? one? train? epoch time; t epoch",
    "step_seconds": "train? step time; batch time; t step",
    "train_seconds": "to? total? model? train time; t train",
    "total_seconds": "total? global? time; t; total; t n; t p; time total epochs; end to end time; e 2 e time; "
                     "time to solution",
    "speedup": "factor? strong? weak? scaling? scaled? parallel? total? train? epoch? time? throughput? x? n? p? "
               "speedup; s n; s p; x? times? faster; speedup vs? to? 1 worker?; speedup vs? to? one worker?; "
               "speedup vs base? baseline?",
    "scaling_efficiency": "strong? weak? parallel? scaling? n? efficiency; e n; e p; speedup worker",
    "compute_seconds": "t? compute time?; forward backward time?; fwd bwd time",
    "communication_seconds": "t? gradient? communication time?; gradient? sync time; gradient exchange time; "
                             "synchronization time",
    "input_seconds": "data? input time?; data? pipeline? wait? input time; data wait? time; io time; i o time",
    "other_seconds": "other time?; overhead time?; idle time?",
    "validation_seconds": "test time",
    "bandwidth": "communication? bus? global? bandwidth; communication? busbw; bus",
    "algbw": "alg bandwidth; communication? algbw",
    "link": "link bandwidth?; link speed; peak link? bandwidth; nominal bandwidth; interconnect bandwidth; "
            "network speed; line speed",
    "bytes": "bytes; message size? bytes?; data? size bytes",
    "gradient_bytes": "gradient size? bytes?; gradient data; gradient volume",
    "parameters": "m? n? model? trainable? parameters",
    "images": "n? train? total? dataset? image; image epoch; dataset size; train set size?; n train",
    "test_images": "n? test image; test set size?; n test",
    "steps": "total? train? global? steps",
    "steps_per_epoch": "train? steps epoch; step epoch; batch epoch",
    "epochs": "n? train? total? epochs",
    "epoch": "epoch id? index?",
    "seed": "random? seed; repeat; trial; replicate; repetition; rep; wiederholung",
    "repeats": "n? repeats; repetitions; reps; n? runs; trials; n? seeds; wiederholungen",
    "test_accuracy": "test? classification? accuracy; test? top 1 accuracy?",
    "train_accuracy": "train accuracy",
    "test_loss": "test? loss",
    "train_loss": "train loss",
    "utilization": "worker? cores? utilization",
    "model": "model name?; network architecture?; architecture; net; arch; cnn; netz; modell",
    "experiment": "experiment; scaling type? mode? kind?",
    "collective": "collective operation?; operation; op; primitive",
}
"""Column of the rules -> names for it, in any order of their words; those with a question mark may be missing.

Synonyms, fillers and units need no entry.
"""

WORDS = {
    "size": "workers", "processes_per_node": "workers per node", "threads": "threads per worker",
    "batch_size": "batch size per worker", "base_lr": "base learning rate", "images_per_sec": "images/s",
    "worker_images_per_sec": "images/s of one worker", "epoch_seconds": "time per epoch",
    "step_seconds": "time per step", "train_seconds": "training time", "link": "link bandwidth",
    "bandwidth": "bus bandwidth", "algbw": "algorithm bandwidth", "bytes": "bytes per message",
    "gradient_bytes": "bytes of gradients", "images": "images per epoch", "epoch": "epoch number",
    "train_accuracy": "training accuracy", "train_loss": "training loss", "seconds": "time of the collective",
}
"""How lint names the rules' columns where their own names are not clear."""

BANDWIDTHS = {"bandwidth", "algbw", "link"}
SIZES = {"bytes", "gradient_bytes"}
SHARES = {"scaling_efficiency", "test_accuracy", "train_accuracy", "utilization"}

PARTS = ("compute_seconds", "communication_seconds", "input_seconds", "other_seconds")
"""Parts of an epoch."""

TEXT = {"model", "experiment", "collective"}
"""The rules' columns that hold words."""

SECONDS = {name for name in MEANINGS if name.endswith("_seconds")} | {"seconds"}

QUALIFIERS = {"worker", "global", "total", "epoch", "step", "batch", "train", "test", "node", "all"}
"""Words that add to a name when they stand in brackets: "batch size (global)", "time (per epoch)"."""

MEASURED = {"time", "accuracy", "loss", "bandwidth", "throughput", "utilization", "memory", "power", "energy", "psnr",
            "bytes", "mae", "mse", "f1", "auc", "temperature", "cost", "speedup", "efficiency", "busbw", "algbw",
            "ram"}
"""Words of measurements: a column with one of them does not tell configurations apart, even if no rule uses it."""
