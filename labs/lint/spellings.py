"""The words of column names: synonyms, fillers, units of time, and the spellings of each of the rules' columns."""

from __future__ import annotations

TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}


TIME_WORDS = {word: unit for unit, words in {
    "s": "s sec secs second seconds sek sekunde sekunden seconde secondes",
    "ms": "ms msec msecs millisecond milliseconds",
    "us": "us µs μs usec microsecond microseconds",
    "ns": "ns nanosecond nanoseconds",
    "min": "min mins minute minutes minuten",
    "h": "h hr hrs hour hours stunde stunden heure heures",
}.items() for word in words.split()}


SAME = {word: one for one, words in {
    "worker": "workers gpu gpus process processes procs proc ranks rank devices tasks ntasks task "
              "processen prozesse karten grafikkarten",
    "cores": "core cpu cpus",
    "node": "nodes hosts servers machines knoten",
    "time": "duration runtime walltime zeit dauer laufzeit elapsed temps seconds second sec secs",
    "train": "training trained fit trainings",
    "epoch": "epoche epochen époque ep",
    "epochs": "époques",
    "step": "iteration iter it update schritt",
    "steps": "iterations iters updates",
    "image": "images img imgs sample samples example examples pictures bilder pics ims im",
    "throughput": "durchsatz thruput tput débit",
    "speedup": "beschleunigung acceleration accélération accel speedups",
    "efficiency": "eff effizienz efficacité",
    "accuracy": "acc genauigkeit précision accuracies",
    "test": "val validation valid eval evaluation dev",
    "learning": "lernrate",
    "communication": "comm comms communicate allreduce kommunikation communications",
    "compute": "computation comp computing calculation rechenzeit calc",
    "input": "loader dataloader loading",
    "other": "rest residual remaining",
    "bandwidth": "bw bandbreite",
    "busbw": "bus_bandwidth",
    "algbw": "alg_bandwidth",
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
}.items() for word in words.split()} | {"second": "time"}


FILLERS = {
    "of", "the", "a", "an", "in", "per", "by", "for", "and", "mean", "average", "avg", "median", "measured",
    "as", "reported", "my", "our", "own", "observed", "actual", "real", "number", "num", "no", "nr", "count",
    "anzahl", "nombre", "used", "all", "result", "results", "value", "final", "best", "wall", "execution",
    "job", "logged", "de", "des", "amount", "taken", "took", "each", "every", "run", "spent", "is", "was",
    "steady", "achieved", "reached", "sustained", "state", "end",
}
"""Words that change nothing: "average time per epoch" is the epoch's time. Digits are no fillers: repeats have them."""


MEANINGS = {
    "size": "workers; n; p; np; n workers; num workers; world size; size; total workers; mpi workers; horovod workers; "
            "parallel workers; worker size; nworkers; ngpus; ngpu; nprocs; nproc; workers horovod; global workers",
    "cores": "cores; n cores",
    "nodes": "nodes; n nodes; compute nodes; nnodes; total nodes",
    "processes_per_node": "workers node; local size; n workers node",
    "threads": "threads; threads worker; omp threads; intra op threads; n threads",
    "batch_size": "batch; batch size; size batch; mini batch; mini batch size",
    "worker_batch_size": "batch size worker; batch worker; local batch; local batch size; batch size local; "
                         "batch local",
    "global_batch_size": "global batch; global batch size; total batch; total batch size",
    "learning_rate": "lr; learning rate; scaled lr; scaled learning rate; initial lr; initial learning rate; learning; "
                     "peak lr; peak learning rate; eta",
    "base_lr": "base lr; base learning rate",
    "images_per_sec": "throughput; image time; throughput image; total throughput; global throughput; image rate; fps; "
                      "train throughput; train image time; total image time; global image time; "
                      "throughput time; train speed image; speed image; ips; rate image",
    "worker_images_per_sec": "throughput worker; image time worker; throughput image worker; image rate worker",
    "epoch_seconds": "epoch time; time one epoch; t epoch; t epoch time; train epoch time",
    "step_seconds": "step time; batch time; train step time; t step",
    "train_seconds": "train time; time to train; total train time; model train time; t train",
    "total_seconds": "time; total time; t; total; t n; t p; end to end time; e2e time; time to solution; global "
                     "time; time total epochs",
    "speedup": "speedup; speed up; speedup factor; strong speedup; weak speedup; strong scaling speedup; "
               "weak scaling speedup; scaled speedup; scaling speedup; s n; s p; speedup n; speedup p; x faster; "
               "times faster; faster; speedup vs 1; speedup vs 1 worker; speedup vs to 1 worker; speedup vs one; "
               "speedup vs one worker; speedup vs to one worker; speedup one worker; speedup to one worker; "
               "speedup vs base; "
               "speedup vs baseline; speedup 1 worker; speedup to 1 worker; vs speedup; parallel speedup; speedup x; "
               "speed up factor; speed up x; speed up vs 1 worker; speed up vs 1; total speedup; train speedup; "
               "epoch speedup; speedup time; speedup epoch; throughput speedup; speedup throughput; speedup vs to 1",
    "scaling_efficiency": "efficiency; scaling efficiency; parallel efficiency; weak scaling efficiency; "
                          "strong scaling efficiency; weak efficiency; strong efficiency; e n; e p; speedup worker; "
                          "efficiency scaling; scaling eff; efficiency n",
    "compute_seconds": "compute time; compute; forward backward time; fwd bwd time; t compute; forward backward",
    "communication_seconds": "communication time; communication; all reduce time; all reduce; sync time; "
                             "gradient exchange time; gradient communication time; synchronization time; "
                             "t communication; "
                             "gradient all reduce time; communication all reduce time; gradient sync time",
    "input_seconds": "input time; data time; input; data input time; data input; input pipeline time; data wait time; "
                     "input wait time; io time; i o time",
    "other_seconds": "other time; other; overhead time; overhead; idle time; idle",
    "validation_seconds": "test time",
    "bandwidth": "bandwidth; busbw; bus bandwidth; communication bandwidth; all reduce bandwidth; bus; "
                 "effective bandwidth; communication busbw; communication bus bandwidth; all reduce busbw; "
                 "all reduce bus bandwidth; global bandwidth; busbandwidth",
    "algbw": "algbw; algorithm bandwidth; alg bandwidth; algo bandwidth; algobw; communication algbw",
    "link": "link; link bandwidth; peak bandwidth; link speed; nominal bandwidth; network speed; peak link bandwidth; "
            "interconnect bandwidth; line speed",
    "bytes": "bytes; message size; message bytes; message; size bytes; data size bytes; message size bytes",
    "gradient_bytes": "gradient bytes; gradient size; gradient; gradient size bytes; gradient data; gradient volume",
    "parameters": "parameters; parameters m; model parameters; trainable parameters; n parameters",
    "images": "image; train image; image epoch; dataset size; train set size; total image; image total; "
              "train set; dataset image; image train; n image; n train",
    "test_images": "test image; test set size; test set; n test",
    "steps": "steps; total steps; steps total; train steps; global steps",
    "steps_per_epoch": "steps epoch; step epoch; batch epoch; steps train epoch",
    "epochs": "epochs; train epochs; n epochs; epochs train; total epochs",
    "epoch": "epoch; epoch number; epoch id; epoch index; epoch nr",
    "seed": "seed; random seed; repeat; trial; replicate; repetition; rep; wiederholung",
    "repeats": "repeats; repetitions; runs; n runs; trials; n repeats; reps; seeds; n seeds; wiederholungen",
    "test_accuracy": "accuracy; test accuracy; top 1 accuracy; top 1; top1 accuracy; top1; accuracy top 1; "
                     "accuracy top1; test top 1 accuracy; test top1; classification accuracy; top 1 test accuracy",
    "train_accuracy": "train accuracy; accuracy train",
    "test_loss": "loss; test loss",
    "train_loss": "train loss; loss train",
    "utilization": "utilization; worker utilization; cores utilization",
    "model": "model; network; architecture; net; arch; cnn; netz; modell; model name; network architecture; modèle",
    "experiment": "experiment; scaling; scaling type; scaling mode; scaling kind; mode scaling",
    "collective": "collective; operation; op; collective operation; primitive",
}
"""Column of the rules -> spellings. Each is read like a column's name, so synonyms and units need no entry."""


WORDS = {
    "size": "workers", "nodes": "nodes", "processes_per_node": "workers per node", "threads": "threads per worker",
    "batch_size": "batch size per worker", "global_batch_size": "global batch size", "learning_rate": "learning rate",
    "base_lr": "base learning rate", "images_per_sec": "images/s", "epoch_seconds": "time per epoch",
    "worker_images_per_sec": "images/s of one worker",
    "step_seconds": "time per step", "train_seconds": "training time", "total_seconds": "total time",
    "scaling_efficiency": "scaling efficiency", "compute_seconds": "compute time", "link": "link bandwidth",
    "communication_seconds": "communication time", "input_seconds": "input time", "other_seconds": "other time",
    "validation_seconds": "validation time", "bandwidth": "bus bandwidth", "algbw": "algorithm bandwidth",
    "bytes": "bytes per message", "gradient_bytes": "bytes of gradients", "images": "images per epoch",
    "test_images": "test images", "steps_per_epoch": "steps per epoch", "epoch": "epoch number",
    "test_accuracy": "test accuracy", "train_accuracy": "training accuracy", "test_loss": "test loss",
    "train_loss": "training loss", "seconds": "time of the collective",
}
"""How lint names the rules' columns; the others are named as they are."""


RATES = {"bandwidth", "algbw", "link"}


SIZES = {"bytes", "gradient_bytes"}


SHARES = {"scaling_efficiency", "test_accuracy", "train_accuracy", "utilization"}


PARTS = ("compute_seconds", "communication_seconds", "input_seconds", "other_seconds")
"""Parts of an epoch; as `step_...`, of a step."""


TEXT = {"model", "experiment", "collective"}
"""The rules' columns that hold words."""


SECONDS = {name for name in MEANINGS if name.endswith("_seconds")} | {f"step_{name}" for name in PARTS} | {"seconds"}


QUALIFIERS = {"worker", "global", "total", "epoch", "step", "batch", "train", "test", "node", "all"}
"""Words that say something inside brackets: "batch size (global)", "time (per epoch)"."""


MEASURED = {"time", "accuracy", "loss", "bandwidth", "throughput", "utilization", "memory", "power", "energy", "psnr",
             "bytes", "mae", "mse", "f1", "auc", "temperature", "cost", "speedup", "efficiency", "busbw", "algbw",
             "ram"}
