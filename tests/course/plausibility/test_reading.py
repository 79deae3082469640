"""Typed tables are read by meaning and unit, however they are spelled; what is no table is refused at once."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys

import pytest

from labs.cli import commands
from labs.course.plausibility import checker, columns, csv_file, reading
from labs.run.errors import LabError

SPELLINGS = {  # The rules' name -> names that students write, with the factor of their unit where it is not 1.
    "size": "gpus|#GPUs|# GPUs|GPUs|Number of GPUs|No. of workers|n_gpus|num_workers|nGPUs|GPU count|World size|np|N|"
            "Anzahl GPUs|MPI ranks|processes|procs|GPUs used|Horovod workers",
    "nodes": "nodes|# nodes|Number of nodes|num_nodes|Knoten",
    "processes_per_node": "gpus_per_node|GPUs/node|ntasks_per_node|workers per node|local_size",
    "epoch_seconds": "epoch_time_s|Epoch time [s]|Time per epoch (s)|s/epoch|sec_per_epoch|seconds per epoch|epoch (s)|"
                     "avg epoch time (s)|mean_epoch_seconds|Epoch time in seconds|epochTime|Zeit pro Epoche (s)|"
                     "T_epoch|"
                     "Epochenzeit [s]|time/epoch|epoch_ms=0.001|Epoch time (min)=60|epoch_time_min=60|epoch duration|"
                     "Sekunden pro Epoche|average time for one epoch (seconds)|epoch_time_h=3600",
    "step_seconds": "ms/step=0.001|step time (ms)=0.001|time per iteration (s)|step_time_us=1e-6|seconds per batch",
    "train_seconds": "training_time_s|Training time (h)=3600|train_seconds|total training time [min]=60|time to "
                     "train (s)",
    "total_seconds": "time|Time [s]|runtime|wall_time_s|Wall clock time (min)=60|elapsed|seconds|T(n)|"
                     "total_time_s|Time (h)=3600|"
                     "duration_s|Laufzeit (s)|execution time (ms)=0.001",
    "images_per_sec": "images/s|img/s|images_per_sec|imgs_per_sec|throughput|Throughput (img/s)|Throughput [images/s]|"
                      "samples/sec|samples_per_second|images per second|imagesPerSec|Total images/sec|images/sec "
                      "(synthetic)|"
                      "Bilder/s|Durchsatz (Bilder/s)|images/min=0.016666666666666666|train throughput (samples/s)",
    "worker_images_per_sec": "images/s per GPU|img/sec/GPU|throughput per worker (img/s)|images_per_sec_per_gpu",
    "speedup": "speedup|Speed-up|speed_up|Speedup (x)|S(n)|S|Speedup vs 1 GPU|Speedup (vs. 1 GPU)|speedup_x|"
               "Speedup (measured)|"
               "Beschleunigung|Acceleration|speedup_as_reported|times faster|relative speedup|speed up factor",
    "scaling_efficiency": "efficiency|Efficiency (%)=0.01|eff_percent=0.01|Efficiency [%]=0.01|parallel "
                          "efficiency|E(n)|"
                          "scaling_efficiency|efficiency_pct=0.01|Effizienz|weak scaling efficiency",
    "bandwidth": "busbw_gbs|busbw|bus bandwidth (GB/s)|busbw_gb_per_sec|bandwidth_gb_per_sec_as_reported|GB/s|BW "
                 "(MB/s)=0.001|"
                 "Bandwidth (Gbit/s)=0.125|bandwidth_gbps=0.125|Bandwidth [GBps]|bandwidth GiB/s=1.073741824",
    "algbw": "algbw (GB/s)|algbw|algorithm bandwidth [GB/s]",
    "link": "link_gb_per_sec|link_gbit_per_sec=0.125|Link speed (Gbit/s)=0.125|peak bandwidth (GB/s)",
    "bytes": "bytes|message size (MB)=1e6|size (B)|size_mb=1e6|Message size [KiB]=1024",
    "gradient_bytes": "gradient_bytes|gradients (MB)=1e6|gradient_mb=1e6|Gradient size [MiB]=1048576",
    "parameters": "params|params (M)=1e6|# parameters|trainable parameters",
    "batch_size": "batch|batch_size|bs|Batch size|minibatch",
    "worker_batch_size": "Batch size (per worker)|batch_size_per_gpu|Batch/GPU|local batch|batch per GPU",
    "global_batch_size": "global batch|Batch size (global)|effective_batch_size|total batch size|Global batch size",
    "learning_rate": "learning_rate|lr|LR|scaled_lr|Learning rate",
    "test_accuracy": "accuracy|acc|val_acc|Test accuracy (%)=0.01|test_acc_percent=0.01|top-1 accuracy|validation "
                     "accuracy|"
                     "Accuracy [%]=0.01|final accuracy|Genauigkeit",
    "train_accuracy": "train_accuracy|training acc|train acc (%)=0.01",
    "compute_seconds": "compute_seconds|Compute (s)|computation time (s)|compute_ms=0.001",
    "communication_seconds": "comm_seconds_as_reported|Comm seconds (per epoch)|comm_ms=0.001|communication time (s)|"
                             "allreduce_time_ms=0.001|all-reduce time|comm (s)|all_reduce_time_s",
    "input_seconds": "input_s|data loading (s)|data_loading_seconds|input time (ms)=0.001",
    "images": "images|training images|train_images|dataset size|# images",
    "steps": "steps|iterations|total steps", "steps_per_epoch": "steps_per_epoch|steps/epoch|iterations per epoch",
    "epochs": "epochs|# epochs|number of epochs", "epoch": "epoch|Epoch", "seed": "seed|random seed|trial",
    "": "ideal speedup|Speedup (vs previous row)|notes|power (W)|time_1|accuracy_std|± (s)|GPU memory|linear",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_column_is_read_in_each_of_its_spellings(name):
    for spelling in SPELLINGS[name].split("|"):
        text, _, factor = spelling.partition("=")
        result = columns.meaning(text)
        assert (result.name, text) == (name, text)
        assert not name or result.factor == pytest.approx(float(factor or 1)), text


@pytest.mark.parametrize(("text", "separator", "name", "value"), [
    ("1,905x", ",", "speedup", 1.905), ("1.905", ";", "speedup", 1.905), ("1,905", ";", "speedup", 1.905),
    ("x1.9", ",", "speedup", 1.9), ("1.9\u00d7", ",", "speedup", 1.9), ("1,9-fach", ";", "speedup", 1.9),
    ("60,000", ",", "images", 60000), ("60.000", ";", "images", 60000), ("60 000", ",", "images", 60000),
    ("60'000", ",", "images", 60000), ("60\u202f000", ";", "images", 60000), ("60k", ",", "images", 60000),
    ("1.281.167", ";", "images", 1281167), ("1e6", ",", "images", 1e6),
    ("1.234,5", ";", "images/s", 1234.5), ("1,234.5", ",", "images/s", 1234.5), ("1 234,5", ";", "images/s", 1234.5),
    ("52,5", ";", "epoch_time_s", 52.5), ("52.5 s", ",", "epoch_time_s", 52.5), ("875 ms", ",", "epoch_time_s", 0.875),
    ("2 min", ",", "epoch_time_s", 120), ("1:02:30", ",", "time", 3750), ("33:10", ",", "time", 1990),
    ("3 min 20 s", ",", "time", 200), ("52.5 ± 0.3", ",", "epoch_time_s", 52.5), ("~52", ",", "epoch_time_s", 52),
    ("91%", ",", "accuracy", 0.91), ("91,5 %", ";", "accuracy", 0.915), ("0.91", ",", "accuracy", 0.91),
    ("91", ",", "accuracy (%)", 0.91), ("0.91", ",", "accuracy (%)", 0.91), ("95", ",", "efficiency", 0.95),
    ("4 GPUs", ",", "gpus", 4), ("8x H100", ",", "gpus", 8), ("two GPUs", ",", "setup", 2),
    ("2 x 4 GPUs", ",", "setup", 8),
    ("1e9", ",", "busbw", 1.0), ("10 GB/s", ",", "busbw", 10), ("80 Gbit/s", ",", "busbw", 10),
    ("**1.9**", ",", "speedup", 1.9), ("1.9 (0.1)", ",", "speedup", 1.9),
])
def test_a_cell_is_read_as_it_was_meant(text, separator, name, value, tmp_path):
    file = io.StringIO()
    csv.writer(file, delimiter=separator).writerows([[name, "notes"], [text, "a"]])
    (tmp_path / "typed.csv").write_text(file.getvalue())
    (row,) = reading.read_csv(tmp_path / "typed.csv").rows
    column = columns.meaning(name).name or "size"
    assert row[column] == pytest.approx(value)


def test_it_says_what_was_read_as_what_and_what_was_not_used(tmp_path):
    (tmp_path / "typed.csv").write_text("#GPUs,Epoch time (ms),colour,model,speedup\n1,900,red,a,1\n2,OOM,red,a,1.9\n"
                                        "4,300,red,a,3\nmean,,,,\n")
    assert reading.read_csv(tmp_path / "typed.csv").reading == (
        "read #GPUs as workers, Epoch time (ms) as time per epoch [ms], model, speedup; told apart by colour; "
        "no figures, left out: line 3 'OOM'; summaries, left out: line 5")


def test_a_table_with_nothing_to_check_is_not_called_plausible(tmp_path, capsys):
    (tmp_path / "typed.csv").write_text("threads,seed,colour\n1,1,red\n2,2,blue\n")
    assert commands.dispatch(["lint", str(tmp_path / "typed.csv")]) == 1
    output = capsys.readouterr()
    assert "plausible" not in output.out
    assert output.err.startswith("labs: error: typed.csv: nothing could be checked: read threads")
    assert output.err.count("\n") == 1
    (tmp_path / "typed.csv").write_text("#GPUs,s/epoch,colour\n1,20,red\n2,11,blue\n")
    assert commands.dispatch(["lint", str(tmp_path / "typed.csv")]) == 0
    assert capsys.readouterr().out == (
        "typed.csv: read #GPUs as workers, s/epoch as time per epoch [s]; not used: colour; checked efficiency "
        "above 1, "
        "slower than in turns, impossible figures\nnothing implausible\n")


def refused(path) -> str:
    """Return the only line of `labs lint PATH`, which has to end at once, with 1."""
    done = subprocess.run([sys.executable, "-c", "from labs import cli; cli.main()", "lint", path], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("labs: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_what_is_no_table_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo.csv")
    with open(tmp_path / "huge.csv", "wb") as file:
        file.write(b"workers,epoch_seconds\n")
        file.truncate(2**40)  # A hole.
    (tmp_path / "long.csv").write_text("workers,epoch_seconds\n" + "1,2\n" * (csv_file.MOST_ROWS + 1))
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "folder").mkdir()
    assert "/dev/zero: it is not a regular file" in refused("/dev/zero")
    for name, line in {"fifo.csv": "not a regular file", "huge.csv": "larger than 4 MiB", "folder": "holds no record",
                       "long.csv": "holds 2,001 rows", "binary.csv": "not a text table"}.items():
        [problem] = checker.verdicts([tmp_path / name])
        assert isinstance(problem, LabError)
        assert re.search(line, str(problem))


def test_a_table_from_a_spreadsheet_in_another_encoding(tmp_path):
    text = "Läufe;GPUs;Sekunden pro Epoche\n1;1;20,5\n2;2;10,9\n"
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        (tmp_path / "typed.csv").write_bytes(text.encode(encoding))
        assert [row["epoch_seconds"] for row in reading.read_csv(tmp_path / "typed.csv").rows] == [20.5, 10.9]
