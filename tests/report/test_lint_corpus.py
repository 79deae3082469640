"""Tables as students type them: nothing is found in the right ones, and the mistake in each wrong one."""

from __future__ import annotations

import pytest

from labs.report import lint

RIGHT = {
    "laptop, two cores": """workers,epoch_time_s,speedup
1,41.3,1
2,24.9,1.66""",
    "four GPUs with percent": """GPUs,Epoch time (s),Speedup,Efficiency (%)
1,182.4,1.00,100
2,94.1,1.94,97
4,49.7,3.67,92""",
    "eight GPUs, rounded": """#GPUs,time per epoch [s],speed-up
1,100,1x
2,52,1.9x
4,27,3.7x
8,15,6.8x""",
    "superlinear by cache": """workers,images/s,speedup
1,412,1.00
2,841,2.04
4,1730,4.20""",
    "tiny model, slower": """GPUs,seconds per epoch,speedup,notes
1,2.1,1.00,baseline
2,2.9,0.72,"tiny CNN: communication dominates, slower than one GPU"
4,3.6,0.58,same""",
    "German": """Anzahl GPUs;Zeit pro Epoche (s);Beschleunigung;Effizienz
1;182,4;1,000;100,0 %
2;94,1;1,938;96,9 %
4;49,7;3,670;91,8 %""",
    "French, thousands with spaces": """GPU;images par seconde;accélération
1;1 250,5;1
2;2 410,3;1,93
4;4 655,0;3,72""",
    "nodes of eight GPUs": """nodes,gpus,images/sec,speedup,efficiency
1,8,5710,1.0,1.00
2,16,11190,1.96,0.98
4,32,21900,3.84,0.96
8,64,42500,7.44,0.93""",
    "no one-worker row": """workers,epoch_s,speedup
2,60.2,1.9
4,31.1,3.68
8,17.0,6.73""",
    "NVLink busbw": """GPU,workers,size (MB),time (us),algbw (GB/s),busbw (GB/s)
H100 NVLink,8,256,1211,211.4,369.9
H100 NVLink,8,1024,4655,220.0,385.0
H100 NVLink,8,4096,17900,228.8,400.4""",
    "8 x H200, not named": """gpus,message_bytes,time_us,busbw_gbs
8,8589934592,31650,475
8,4294967296,16100,466.9""",
    "B200, named": """gpu,gpus,busbw (GB/s)
B200,8,832""",
    "Ethernet, two nodes": """nodes,workers,bytes,seconds,busbw_gbs
2,2,104857600,0.0900,1.165
2,2,10485760,0.0094,1.115""",
    "accuracy percent with seeds": """workers,seed,test_acc_percent,lr
1,1,91.2,0.1
1,2,91.0,0.1
2,1,91.1,0.2
2,2,90.8,0.2
4,1,90.9,0.4
4,2,90.7,0.4""",
    "percent and share": """gpus,epoch time (s),val_acc
1,120.2,0.91
2,63.1,91
4,33.0,90.5%""",
    "repeats with a mean": """workers,repeat,epoch_seconds
1,1,20.31
1,2,20.57
1,3,20.44
2,1,11.02
2,2,10.87
2,3,11.10
mean,,""",
    "missing cells": """gpus,batch_size,epoch_time_s,speedup
1,32,48.6,1
1,128,OOM,
2,32,30.8,1.58
4,32,-,-
4,128,n/a,""",
    "minutes": """GPUs,Training time (min),Speedup
1,61.5,1
2,32.2,1.91
4,17.6,3.49""",
    "clock": """GPUs,Total time,Speedup
1,1:02:30,1.0
2,33:10,1.88
4,18:45,3.33""",
    "weak scaling": """workers,batch_per_gpu,step time (ms),images/s,efficiency
1,64,210,304.8,1.00
2,64,218,587.2,0.96
4,64,226,1132.7,0.93
8,64,241,2124.5,0.87""",
    "weak scaling by time": """nodes,scaling,time (s),efficiency
1,weak,301,1.00
2,weak,310,0.97
4,weak,322,0.93""",
    "strong scaling": """gpus,global batch,batch per gpu,epoch_s,speedup,accuracy
1,256,256,93.0,1,0.912
2,256,128,50.1,1.86,0.911
4,256,64,29.8,3.12,0.913""",
    "throughput of one GPU": """GPUs,img/s per GPU
1,220.1
2,214.8
4,205.3""",
    "ideal beside measured": """GPUs,ideal speedup,speedup (measured),time/epoch (s)
1,1,1,88.2
2,2,1.87,47.2
4,4,3.31,26.6""",
    "epochs": """epoch,epoch_time_s,loss,accuracy
1,35.1,1.71,0.41
2,21.3,1.22,0.57
3,21.0,1.01,0.64
4,21.9,0.88,0.69""",
    "the sum of the parts": """workers,epoch (s),compute (s),all-reduce (s),input (s),other (s)
1,40.2,37.0,0,2.1,1.1
2,24.5,18.7,3.6,1.2,1.0""",
    "fixed steps": """gpus,batch size,steps,images/sec
1,64,100,219
2,64,100,431
4,64,100,850""",
    "two networks": """model,gpus,images/s,speedup
ResNet50,1,219,1
VGG16,1,154,1
ResNet50,8,1734,7.92
VGG16,8,1081,7.02""",
    "title and units row": """Lab 4: my measurements,,
GPUs,epoch time,speedup
,(s),
1,80.2,1
2,42.3,1.90""",
    "GPUs against a CPU": """device,workers,epoch_s,speedup
CPU,1,902.0,1.0
GPU,1,72.1,12.5
GPU,2,38.4,23.5""",
    "text sizes": """setup;time per epoch;speedup
1 GPU;52,5 s;1
2 GPUs;28,75 s;1,83
4 GPUs;16,24 s;3,23""",
    "tabs": "workers\timages_per_sec\tspeedup\tnote\n1\t1,234.5\t1\t\n2\t2,310.0\t1.87\tran at night, alone",
    "report-like communication": """batch_size,gpus,epoch_s,comm_s,bandwidth_gbs,gradient_mb,images
32,2,31.0,9.2,3.80,44.7,50000
128,2,21.0,2.4,3.65,44.7,50000""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_a_right_table(name, tmp_path):
    (tmp_path / "right.csv").write_text(RIGHT[name])
    assert [str(line) for line in lint.check([tmp_path / "right.csv"])] == []


WRONG = {  # Rule, line, table.
    "divided by the row before": ("wrong speedup", 4, """gpus,epoch_time_s,speedup
1,100,1
2,52.5,1.905
4,28.75,1.826
8,16.24,1.77"""),
    "divided by the row before, in German": ("wrong speedup", 4, """gpus;epoch_time_s;speedup
1;100,00;1
2;52,50;1,905x
4;28,75;1,826x
8;16,24;1,770x"""),
    "upside down": ("wrong speedup", 3, """gpus,epoch_time_s,speedup
1,100,1
2,52.5,0.525
4,28.75,0.2875"""),
    "upside down, no times": ("speedup below 1", 3, """gpus,speedup
1,1
2,0.525
4,0.2875"""),
    "busbw above any link": ("bandwidth above the machine's", 2, """workers,bytes,seconds,busbw_gbs
2,104857600,0.0002,524
2,10485760,0.00003,350"""),
    "busbw above its GPUs": ("bandwidth above the machine's", 3, """gpu,workers,busbw (GB/s)
V100,8,130
V100,8,310"""),
    "busbw above its network": ("bandwidth above the machine's", 2, """nodes,network,workers,busbw (GB/s)
2,10 GbE,2,12.5"""),
    "2.5 times slower": ("slower than in turns", 3, """workers,epoch_seconds
1,10.1
2,25.3"""),
    "2.5 times slower, images": ("slower than in turns", 3, """workers,images/s,speedup
1,1000,1
2,400,0.4"""),
    "superlinear": ("efficiency above 1", 4, """GPUs,Epoch time (s)
1,100
2,51
4,19.5"""),
    "efficiency above 1": ("efficiency above 1", 3, """GPUs,efficiency (%)
1,100
2,131
4,88"""),
    "uneven epochs": ("uneven epochs", 4, """epoch,time_s,loss
1,30.2,1.9
2,20.1,1.2
3,41.0,1.0
4,20.3,0.9"""),
    "copied": ("identical clocks", 2, """gpus,seed,epoch_seconds
1,1,41.3072
1,2,41.3072
2,1,22.1734"""),
    "global batch": ("wrong global batch", 3, """gpus,batch size per gpu,effective batch size
1,128,128
2,128,128
4,128,512"""),
    "learning rate": ("changed learning rate", 3, """GPUs,learning rate,accuracy (%)
1,0.0005,95.1
4,0.1,96.3"""),
    "impossible accuracy": ("impossible figure", 3, """gpus,accuracy (%)
1,91
2,103"""),
    "wrong efficiency": ("wrong efficiency", 3, """gpus,speedup,efficiency
1,1,100%
2,1.8,95%"""),
    "efficiency without speedup": ("wrong efficiency", 4, """gpus,time (s),efficiency
1,120,1
2,65,0.92
4,38,0.95"""),
    "parts that do not sum": ("parts that do not sum", 3, """workers,epoch (s),compute (s),comm (ms)
1,30.0,29.5,0
2,30.8,17.7,149.5"""),
    "bytes of the data set": ("wrong bandwidth", 2, """batch,gpus,epoch time (s),comm time (ms),bandwidth (GB/s)
32,2,30.8,149.5,1.191
128,2,20.9,49.56,3.592
512,2,15.7,34.11,5.218"""),
    "algbw for busbw": ("wrong bandwidth", 2, """collective,workers,bytes,seconds,busbw (GB/s)
allreduce,4,1000000,0.001,1.0"""),
    "Gbit for GB": ("wrong bandwidth", 2, """workers,message size (MB),time (ms),busbw (GB/s)
2,100,20,40"""),
    "steps of other workers": ("steps of other workers", 4, """epochs,GPUs,batch size,steps
40,1,128,18750
40,2,128,9375
40,2,128,3120"""),
    "slower and called faster": ("wrong speedup", 3, """gpus,epoch_time_s,speedup
1,10.0,1
2,13.0,1.3"""),
    "own base": ("wrong speedup", 4, """batch,gpus,epoch_s,speedup
32,1,48.6,1
32,2,30.8,1.58
128,1,27.2,1.79
128,2,20.9,1.47"""),
    "strong scaling that is none": ("strong scaling that is none", 3, """experiment,gpus,batch size,images/s
strong scaling,1,128,220
strong scaling,2,128,430"""),
    "bytes by batch": ("bytes by batch", 2, """batch_size,allreduce (MB)
32,39.915
64,19.968
128,9.984"""),
    "too many nodes": ("impossible layout", 2, """nodes,gpus,images/s
4,2,410"""),
    "labels swapped": ("wrong speedup", 3, """gpus,time (min),speedup
1,7.6,1
2,6.33,2.24
4,3.39,1.20"""),
    "images per second of one GPU": ("efficiency above 1", 3, """GPUs,images/s/GPU
1,100
2,140"""),
    "no base": ("wrong speedup", 3, """workers,epoch_s,speedup
2,60.2,1.9
4,31.1,1.94
8,17.0,1.83"""),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_mistake_of_a_wrong_table_is_found(name, tmp_path):
    rule, line, table = WRONG[name]
    (tmp_path / "wrong.csv").write_text(table)
    found = lint.check_csv(tmp_path / "wrong.csv")
    assert (rule, line) in {(finding.rule, row) for finding in found for row in finding.rows}
