"""Column names of a results table: what each one means, and its unit.

    meaning("Epoch time [ms]")    Column("epoch_seconds", "ms", 0.001)
    meaning("# GPUs")             Column("size")
    meaning("ideal speedup")      Column("")     A prediction: no rule may take it for a measurement.

A name is split into words, its unit is taken off, synonyms become one word, fillers are dropped, and what is left is
looked up. A name with a word that is not known is not guessed: the column is not used, and lint says so.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata

TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
TIME_WORDS = {word: unit for unit, words in {
    "s": "s sec secs second seconds sek sekunde sekunden seconde secondes",
    "ms": "ms msec msecs millisecond milliseconds",
    "us": "us µs μs usec microsecond microseconds",
    "ns": "ns nanosecond nanoseconds",
    "min": "min mins minute minutes minuten",
    "h": "h hr hrs hour hours stunde stunden heure heures",
}.items() for word in words.split()}
BYTES = re.compile(r"(?P<prefix>[kmgt]?)(?P<binary>i?)(?P<what>bytes|byte|bits|bit|b)"
                   r"(?P<per>(?:/| |p)?(?:s|sec|second))?", re.IGNORECASE)
"""GB/s, GiB, Mbit/s, gbps, kB ... A small b with a large prefix is a bit: Gb/s, as is ...bps without a capital B."""

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


@dataclasses.dataclass(frozen=True)
class Column:
    """What a column's name says."""

    name: str
    """The rules' name; empty if no rule uses the column."""
    unit: str = ""
    """As it is written in a message; empty if the name has none."""
    factor: float = 1.0
    """From the unit to that of the rules: seconds, bytes, GB/s, shares."""
    spread: bool = False
    """Whether it is the spread or the interval of another column."""
    measured: bool = False
    """Whether it has the unit of something measured, so that it does not tell configurations apart."""


@functools.cache
def meaning(name: str) -> Column:
    """Return what a column's name means."""
    text = unicodedata.normalize("NFKC", name).strip(" *`'\"$:").replace("\\", "")
    text = re.sub(r"[ _]as[ _]reported$", "", text)
    text = re.sub(r"(?<=\w)\s*±[^(\[]*", "", text)  # "speedup ± 95 % CI" is the speedup.
    if re.fullmatch(r"S", text):
        text = "speedup"
    text = re.sub(r"^([STE])\s*(\(\s*[nNpP]\s*\)|_\s*[nNpP]\b)",
                  lambda found: {"S": "speedup", "T": "time", "E": "efficiency"}[found[1]], text)
    brackets = re.findall(r"[(\[{<]([^)\]}>]*)[)\]}>]?", text)
    words, unit, factor = _units(_split(re.sub(r"[(\[{<][^)\]}>]*[)\]}>]?", " ", text)))
    aside: list[str] = []
    for part in (part for bracket in brackets for part in re.split(r"[,;]", bracket)):
        inner, inner_unit, inner_factor = _units(_split(part), bracketed=True)
        if inner_unit and not unit:
            unit, factor = inner_unit, inner_factor
        aside += _aside(inner)
    return _column(words, aside, unit, factor)


def _column(words: list[str], aside: list[str], unit: str, factor: float) -> Column:
    bag = [SAME.get(word.lower(), word.lower()) for word in words]
    bag = [word for word in bag if word not in FILLERS] + aside
    timed, sized = unit in TIME, bool(BYTES.fullmatch(unit))
    measured = bool(unit) and unit != "x"
    if {"predicted", "spread"} & set(bag):
        return Column("", unit, factor, "spread" in bag and "predicted" not in bag, True)
    if not bag and sized and "/" in unit:
        return Column("bandwidth", unit, factor)
    if timed and "time" not in bag and "throughput" not in bag:
        bag.append("time")
    if sized and "/" not in unit:
        found = _LOOK_UP.get(frozenset({*bag, "bytes"})) or _LOOK_UP.get(frozenset(bag))
        if found in SIZES | {"size"}:
            return Column("bytes" if found == "size" else found, unit, factor)
        plain = [word.lower() for word in words if word.lower() not in {"as", "reported", "of", "per", "step", "epoch"}]
        per = next((f"_per_{word}" for word in ("step", "epoch") if word in bag), "")
        return Column("_".join([*plain, "bytes"]) + per, unit, factor, measured=True)
    found = _LOOK_UP.get(frozenset(bag), "")
    if found in ("images_per_sec", "worker_images_per_sec"):
        return Column(found, f"images/{unit}" if timed else "", 1 / factor if timed else 1.0)
    wanted = (found in SECONDS and (timed or not unit)) or (found in RATES and (sized or not unit)) or (
        found in SHARES and unit in ("", "%", "x")) or (
        found not in SECONDS | RATES | SHARES and unit in ("", "x", "M", "k", "%"[:found == "speedup"]))
    if not wanted:
        return Column("", unit, factor, measured=measured or any(word in bag for word in _MEASURED))
    return Column(found, unit, factor, measured=not found and any(word in bag for word in _MEASURED))


_MEASURED = {"time", "accuracy", "loss", "bandwidth", "throughput", "utilization", "memory", "power", "energy", "psnr",
             "bytes", "mae", "mse", "f1", "auc", "temperature", "cost", "speedup", "efficiency", "busbw", "algbw",
             "ram"}


def _split(text: str) -> list[str]:
    """Split a name into words; `per`, `number` and `percent` are written out."""
    text = re.sub(r"([a-zé])([A-Z][a-z])", r"\1 \2", text)
    text = text.replace("#", " number ").replace("%", " % ").replace("/", " per ").replace("±", " std ")
    text = re.sub(r"\b(pro|par)\b", "per", text)
    text = re.sub(r"\bBusbandbreite\b", "busbw", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(Epochen?|Trainings?|Gesamt|Rechen|Schritt)(?=zeit|dauer)", r"\1 ", text, flags=re.IGNORECASE)
    text = re.sub(r"\ball[-_ ]?reduce\b", "allreduce", text, flags=re.IGNORECASE)
    text = re.sub(r"\bwall[-_ ]?clock\b", "wall", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(images?|imgs?|samples?)(?=Per|per[A-Z_])", r"\1 ", text)
    text = re.sub(r"^(n|num|nb)_?(?=(gpus?|workers?|procs?|nodes?|ranks?|processes)\b)", "n ", text,
                  flags=re.IGNORECASE)
    return re.findall(r"[^\W\d_]+|\d+|%", text)


def _units(words: list[str], bracketed: bool = False) -> tuple[list[str], str, float]:
    """Take the unit off a name's words; return the others, the unit, and its factor."""
    low = [word.lower() for word in words]
    for place, word in enumerate(low):  # images per second, images per second per GPU
        if word == "per" and low[place + 1:place + 2] and low[place + 1] in TIME_WORDS and place and (
                low[place - 1] in SAME and SAME[low[place - 1]] == "image"):
            unit = TIME_WORDS[low[place + 1]]
            return words[:place] + words[place + 2:], unit, TIME[unit]
    if low and low[0] in TIME_WORDS and low[1:2] == ["per"]:  # s per epoch
        unit = TIME_WORDS[low[0]]
        return words[2:], unit, TIME[unit]
    if low[-2:-1] == ["per"] and SAME.get(low[-1], low[-1]) in ("step", "epoch", "batch"):  # bytes per step
        inner, unit, factor = _units(words[:-2])
        if unit:
            return [*inner, *words[-2:]], unit, factor
    for count in (3, 2, 1):
        if len(words) >= count and (found := _unit(words[-count:], bracketed or len(words) > count)):
            return words[:-count], *found
    if bracketed and low and low[0] in TIME_WORDS:  # (s, mean of 3)
        unit = TIME_WORDS[low[0]]
        return words[1:], unit, TIME[unit]
    return words, "", 1.0


def _unit(words: list[str], apart: bool) -> tuple[str, float] | None:
    """Return a unit and its factor, if these words are one.

    Args:
        words: The last words of a name.
        apart: Whether the name has other words, or these stand in brackets: single letters are units only there.
    """
    low, text = words[-1].lower(), " ".join(words).replace(" per ", "/")
    if len(words) == 1:
        if low in TIME_WORDS and (apart or len(low) > 1):
            return TIME_WORDS[low], TIME[TIME_WORDS[low]]
        if low in ("%", "percent", "pct", "percentage", "prozent"):
            return "%", 0.01
        if words[0] in ("x", "X", "\u00d7"):
            return "x", 1.0
        if (apart and words[0] in ("M", "k", "K")) or low in ("millions", "million", "mio", "thousands"):
            return ("k", 1e3) if low in ("k", "thousands") else ("M", 1e6)
    found = BYTES.fullmatch(text)
    if not found or (low == "b" and not (apart and text == "B")) or (text.lower() in ("bs", "b s", "bps")):
        return None
    prefix, binary, what, per = found["prefix"].lower(), found["binary"], found["what"], found["per"] or ""
    bits = what.lower().startswith("bit") or (what == "b" and (found["prefix"].isupper() or per.startswith("p")))
    if bits and not per:
        return None
    scale = (1024.0 if binary else 1000.0) ** " kmgt".index(prefix or " ") / (8 if bits else 1)
    name = (prefix if prefix == "k" else prefix.upper()) + binary + ("bit" if bits else "B") + "/s" * bool(per)
    return name, scale / 1e9 if per else scale


def _aside(words: list[str]) -> list[str]:
    """Return what words in brackets add to a name: nothing, a qualifier, or that no rule may use the column."""
    bag = [SAME.get(word.lower(), word.lower()) for word in words]
    bag = [word for word in bag if word not in FILLERS - {"all"}]
    if {"predicted", "spread"} & set(bag):
        return [word for word in bag if word in ("predicted", "spread")]
    if "vs" in bag or "previous" in bag or "prev" in bag:
        own = set(bag) <= {"vs", "to", "1", "one", "worker", "baseline", "base", "node", "t"}
        return [] if own else ["predicted"]
    if bag and set(bag) <= QUALIFIERS:
        return [word for word in bag if word != "all"]
    return []


def _look_up() -> dict[frozenset[str], str]:
    """Return the rules' column of each set of words."""
    found = {}
    for name, spellings in MEANINGS.items():
        for spelling in spellings.split(";"):
            words = (SAME.get(word, word) for word in _split(spelling.strip()))
            bag = frozenset(word for word in words if word not in FILLERS)
            found[bag] = name
            if name in PARTS:
                found[bag | {"epoch"}] = name
                found[bag | {"step"}] = found[bag | {"batch"}] = f"step_{name}"
    return found


_LOOK_UP = _look_up()
