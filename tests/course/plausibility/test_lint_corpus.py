"""Tables as students type them: nothing is found in the right ones, and the mistake in each wrong one."""

from __future__ import annotations

import pytest

from labs.course.plausibility import checker

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
    # Three rounds of twenty, written before their reading was tried.
    "round 1, 1": """num_gpus,batch_size_per_gpu,throughput_img_s,scaling_efficiency_pct
1,256,1350.2,100
2,256,2660,98.5
4,256,5210,96.5
8,256,10150,94.0""",
    "round 1, 2": """Ranks;Wall time [min];Speed-up (vs. 1 rank);Parallel eff.
1;61,5;1;1
2;32,2;1,91;0,955
4;17,6;3,49;0,874""",
    "round 1, 3": """n,T(n) [s],S(n),E(n)
1,300.2,1,1
2,155.9,1.93,0.96
4,83.3,3.60,0.90
8,46.9,6.40,0.80""",
    "round 1, 4": """| Workers | Sec/epoch | Speedup |
|---|---:|---:|
| 1 | 40.2 | 1.00 |
| 2 | 22.9 | 1.76 |
| 4 | 13.3 | 3.02 |""",
    "round 1, 5": """backend,workers,ms_per_step,test_acc
none,1,64.0,0.981
MPI,2,70.1,0.983
Gloo,2,81.4,0.982""",
    "round 1, 6": """model,batch,gpus,img_per_sec_total,img_per_sec_per_gpu
resnet50,64,1,360,360
resnet50,64,4,1390,347.5
vgg16,64,1,240,240
vgg16,64,4,790,197.5""",
    "round 1, 7": """Lauf;GPUs;Zeit (s);Kommentar
1;1;412,3;"erste Messung; kalt"
2;1;405,9;
3;2;219,4;
4;4;121,8;Lüfter laut""",
    "round 1, 8": """GPUs,Total training time (h),Final top-1 (%),Energy (kWh)
8,29.1,76.3,92
16,14.9,76.2,95
32,7.8,76.4,101
64,4.2,76.1,110""",
    "round 1, 9": """gpus,epoch1_s,epoch2_s,epoch3_s,mean_s,speedup
1,52.0,41.0,41.3,41.15,1
2,33.9,22.4,22.0,22.2,1.85
4,25.5,12.9,13.1,13.0,3.17""",
    "round 1, 10": """size(B),count(elements),type,redop,time(us),algbw(GB/s),busbw(GB/s)
8388608,2097152,float,sum,110.5,75.91,132.85
67108864,16777216,float,sum,518.2,129.50,226.63
536870912,134217728,float,sum,3395.0,158.14,276.74""",
    "round 1, 11": """configuration,nodes,ranks per node,images/sec,speedup
1x1,1,1,210,1
1x4,1,4,810,3.86
2x4,2,4,1560,7.43
4x4,4,4,3010,14.3""",
    "round 1, 12": """workers,lr,val_acc
4,0.1,0.60
4,0.2,0.71
4,0.4,0.69
4,0.8,0.40""",
    "round 1, 13": """batch,steps per epoch,all-reduce bytes per step,all-reduce MB per epoch
32,1875,21288,39.9
64,938,21288,20.0
128,469,21288,10.0""",
    "round 1, 14": """GPUs,epoch (s),compute %,communication %,input %,other %
1,100.1,93,0,5,2
2,56.0,83,11,4,2
4,33.2,70,24,4,2""",
    "round 1, 15": """Dataset,Training images,Epochs,GPUs,Batch/GPU,Steps,Accuracy
MNIST,"60,000",40,1,128,"18,750",98.3%
MNIST,"60,000",40,2,128,"9,375",98.6%
MNIST,"60,000",40,4,128,"4,688",99.0%""",
    "round 1, 16": """workers,threads,images_per_sec
1,28,19.9
2,14,22.1
4,7,22.8""",
    "round 1, 17": """gpus,avg_epoch_s,std_epoch_s,speedup,ci95_low,ci95_high
1,61.2,0.4,1,,
2,33.0,0.9,1.85,1.79,1.92
4,18.9,0.3,3.24,3.17,3.31""",
    "round 1, 18": """depth,width,workers,train_time_s,psnr
4,32,1,20.1,24.9
4,32,2,13.0,24.8
8,64,1,85.2,26.0
8,64,2,49.9,25.9""",
    "round 1, 19": """GPUs;Epochenzeit;Speedup;Bemerkung
1;3 min 20 s;1,0;Basis
2;1 min 45 s;1,9;
4;58 s;3,4;""",
    "round 1, 20": """date,host,procs,secs,x faster
2026-11-01,node3,1,812,1
2026-11-01,node3,2,430,1.89
2026-11-02,node4,4,251,3.24""",
    "round 2, 1": """Batch size,1 GPU (s),2 GPUs (s),4 GPUs (s)
32,48.6,30.8,30.8
128,27.2,20.9,19.9
512,25.9,15.7,15.1""",
    "round 2, 2": """GPUs,Epoch time (s),Epoch time std (s),Speedup ± 95% CI
1,100.3,0.9,1
2,53.2,0.8,1.89 ± 0.03
4,29.8,1.1,3.37 ± 0.13""",
    "round 2, 3": """system,#GPUs,per-GPU batch,global batch,img/s,scaling eff.
DGX A100,8,256,2048,20100,baseline
DGX A100,16,256,4096,39400,98.0%
DGX A100,32,256,8192,77200,96.0%""",
    "round 2, 4": """procs per node;nodes;total procs;time to solution [s];speedup
4;1;4;812,4;4,0
4;2;8;420,1;7,73
4;4;16;224,9;14,4""",
    "round 2, 5": """GPU,Time/epoch
1,2m30s
2,1m22s
4,0m46s""",
    "round 2, 6": """workers,val loss,val accuracy,train accuracy,epoch time
1,0.412,88.1%,91.3%,61 s
2,0.409,88.3%,91.1%,33 s
4,0.431,87.5%,90.2%,19 s""",
    "round 2, 7":
        """Number of GPUs,Total time (s),Time for first epoch (s),Remaining epochs (s per epoch),Speedup (remaining)
1,310,60,50,1
2,181,49,26.4,1.89
4,118,46,14.4,3.47""",
    "round 2, 8": """collective,library,workers,bytes,seconds,busbw
allreduce,MPI,2,1048576,0.00055,1906501818
allreduce,Horovod,2,1048576,0.00072,1456355556""",
    "round 2, 9": """n_workers,base_lr,scaled_lr,warmup_epochs,top1
1,0.1,0.1,0,76.1
8,0.1,0.8,5,76.2
32,0.1,3.2,5,75.9""",
    "round 2, 10": """Workers,Images/s (real data),Images/s (synthetic)
1,180,219
2,340,432
4,610,851""",
    "round 2, 11": """gpus,util %,img/s
1,97,412
2,93,790
4,88,1480""",
    "round 2, 12": """GPUs,Speedup (Amdahl),Speedup,Efficiency
1,1,1,1
2,1.9,1.88,0.94
4,3.5,3.31,0.83
8,5.9,5.21,0.65""",
    "round 2, 13": """gpus;img_s;speedup
1;219,0;1,00
2;431,3;1,97
4;850,6;3,88
8;1.667,4;7,61""",
    "round 2, 14": """experiment,workers,threads per worker,batch size per worker,images per second
weak,1,1,32,420
weak,2,1,32,801
strong,1,1,32,420
strong,2,1,16,733""",
    "round 2, 15": """# workers,step (ms),compute (ms),allreduce (ms),rest (ms)
1,60,58,0,2
2,66,58.5,5.5,2
4,75,59,14,2""",
    "round 2, 16": """host;GPU;Anzahl;Epoche [min];Genauigkeit [%]
dgx1;V100;1;12,5;91,2
dgx1;V100;4;3,4;91,0
dgx1;V100;8;1,9;90,7""",
    "round 2, 17": """resume,epochs,gpus,wall (h)
no,90,8,29
no,90,64,4.1""",
    "round 2, 18": """size,nodes,hosts,images_per_sec,speedup,scaling_efficiency
1,1,a,102.4,1.0,1.0
2,2,"a,b",190.1,1.856,0.928
4,2,"a,b",350.0,3.418,0.854""",
    "round 2, 19": """Net,GPUs,Params (M),Gradients (MB),images/s
ResNet-50,8,25.6,102,2900
VGG-16,8,138.4,553,1700""",
    "round 2, 20": """optimizer,workers,lr,accuracy
SGD,1,0.1,0.91
SGD,2,0.2,0.91
Adam,1,0.001,0.90
Adam,2,0.001414,0.90""",
    "round 3, 1": """gpus,epoch_time_s,speedup,efficiency
1,97.31,1.000,100.0%
2,50.12,1.942,97.1%
4,26.48,3.675,91.9%
8,14.71,6.615,82.7%""",
    "round 3, 2": """Workers;Durchsatz (Bilder/s);Speedup;Effizienz (%)
1;215,3;1,00;100
2;418,9;1,95;97
4;801,2;3,72;93""",
    "round 3, 3": """nodes,gpus_per_node,batch_per_gpu,global_batch,images_per_sec,link_gbit_per_sec
1,4,64,256,1420,100
2,4,64,512,2760,100
4,4,64,1024,5410,100""",
    "round 3, 4": """run,gpus,batch,epoch,train_loss,val_acc,epoch_s
a,1,128,1,2.1,0.31,44.1
a,1,128,2,1.6,0.45,36.2
a,1,128,3,1.3,0.53,36.4
b,2,128,1,2.2,0.29,31.0
b,2,128,2,1.7,0.44,19.5
b,2,128,3,1.4,0.51,19.3""",
    "round 3, 5": """workers,time_s,speedup
1,0.84,1
2,1.31,0.64""",
    "round 3, 6": """GPUs,train images/s,test accuracy %
1,1520,99.1
2,2950,99.0
4,5600,99.1""",
    "round 3, 7": """batch,workers,compute_ms,allreduce_ms,step_ms
32,2,40.1,8.0,48.5
64,2,79.8,8.1,88.4
128,2,160.3,8.0,168.9""",
    "round 3, 8": """machine,GPUs,images/sec
RTX 3090,1,420
RTX 3090,2,812
A100,1,880
A100,2,1731""",
    "round 3, 9": """Total GPUs,Time (hours),Speedup over 8 GPUs
8,29.0,1
32,7.6,3.8
256,1.0,29""",
    "round 3, 10": """gpus,params,gradient MB,allreduce time (ms),busbw (GB/s)
2,11173962,44.7,12.1,3.69
4,11173962,44.7,17.8,3.77""",
    "round 3, 11": """epochs,gpus,accuracy,accuracy_std,runs,train_time_min
40,1,98.27,0.11,5,7.6
40,2,98.62,0.13,5,4.0
40,4,98.41,0.12,5,2.2""",
    "round 3, 12": """p;T_p [s];S_p;E_p
1;1.204,5;1,00;1,00
2;   640,7;1,88;0,94
4;   351,2;3,43;0,86""",
    "round 3, 13": """library,workers,step time (ms)
Horovod MPI,1,60
Horovod MPI,2,64
Horovod Gloo,1,60
Horovod Gloo,2,78
PyTorch DDP,1,71
PyTorch DDP,2,147""",
    "round 3, 14": """workers,"images/sec, mean of 3",95% CI,speedup
1,"1,270",12,1.0
2,"2,380",35,1.87""",
    "round 3, 15": """GPUs,Epoch time (s),Total time for 40 epochs (min),Speedup
1,11.4,7.6,1
2,5.9,4.0,1.93
4,3.2,2.2,3.56""",
    "round 3, 16": """gpus,loss,perplexity,tokens/s
1,3.1,22.2,4100
2,3.1,22.3,8050""",
    "round 3, 17": """model,processes,threads,batch,images/sec
InceptionV3,1,28,128,17.2
InceptionV3,2,14,64,18.9
InceptionV3,4,7,32,19.46""",
    "round 3, 18": """Layer,workers,time
conv1,1,3.2
conv1,2,3.3
fc,1,0.2
fc,2,0.2""",
    "round 3, 19": """gpus,time per epoch,speedup
1,62.0 s,1.0x
2,32.1 s,1.9x
4,17.9 s,3.5x
total,112.0 s,""",
    "round 3, 20": """device,batch,img/s
cpu,128,39
gpu,128,412
gpu,1024,1318""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_a_right_table(name, tmp_path):
    (tmp_path / "right.csv").write_text(RIGHT[name])
    assert [str(line) for line in checker.check([tmp_path / "right.csv"])] == []


WRONG = {  # Rule, line, table.
    "bus bandwidth without 2 (n - 1) / n": ("wrong bandwidth", 2, """ranks,message (MB),time (ms),bus bandwidth (GB/s)
4,100,10,10
4,100,20,7.5"""),
    "bytes per step that follow the batch": ("bytes by batch", 2,
                                             """batch size,GPUs,allreduce bytes per epoch,steps per epoch
32,2,16632000,781
128,2,33264000,195"""),
    "throughput of one worker beside times of two": ("rate against time", 3,
                                                     """gpus,images_per_sec,epoch_time_s,training_images
1,500,100,50000
2,500,52,50000"""),
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
    # Three rounds of twenty, written before their reading was tried.
    "round 1, 1": ("wrong speedup", 3, """GPUs,Training time (min),times faster
1,7.6,1
2,6.33,0.53
4,3.39,0.83"""),
    "round 1, 2": ("efficiency above 1", 3, """num_gpus,throughput (samples/s)
1,220
8,2300"""),
    "round 1, 3": ("efficiency above 1", 3, """nodes,gpus per node,images/sec,speedup
1,4,800,1
2,4,1500,3.75
4,4,2800,7.0"""),
    "round 1, 4": ("steps of other workers", 3, """train_images,epochs,workers,batch_size_per_gpu,steps
60000,1,1,100,600
60000,1,2,100,600
60000,1,4,100,600"""),
    "round 1, 5": ("bandwidth above the machine's", 2, """ranks,busbw (MB/s)
4,524000"""),
    "round 1, 6": ("efficiency above 1", 4, """n_gpus;Effizienz
1;100 %
2;104 %
4;132 %"""),
    "round 1, 7": ("parts that do not sum", 3, """workers,epoch_ms,compute_ms,allreduce_ms,loader_ms
1,30000,26000,0,3900
2,17000,15500,9000,2000"""),
    "round 1, 8": ("input is no traffic", 2, """batch_size,bytes sent (MB)
32,188.16
64,188.16"""),
    "round 1, 9": ("identical clocks", 2, """workers,seed,accuracy,train_time_s
2,1,0.981,84.2713
2,2,0.979,84.2713
2,3,0.982,84.2713"""),
    "round 1, 10": ("difference within noise", 2, """GPUs,test accuracy
2,0.9902
4,0.9905"""),
    "round 1, 11": ("slower than in turns", 3, """Anzahl Prozesse;Sekunden pro Epoche
1;12,4
2;31,0"""),
    "round 1, 12": ("efficiency above 1", 4, """GPUs;Bilder/s
1;1.250,5
2;2.400,0
4;6.480,9"""),
    "round 1, 13": ("wrong speedup", 2, """gpus,time_s,speedup
1,100,0.53
2,53,1
4,28,1.89"""),
    "round 1, 14": ("wrong efficiency", 3, """gpus,speedup,efficiency
2,1.8,0.9
4,3.2,1.07
8,5.6,0.8"""),
    "round 1, 15": ("changed learning rate", 3, """workers,lr,batch_size,accuracy
1,0.01,32,0.81
4,1.0,32,0.55"""),
    "round 1, 16": ("efficiency above 1", 4, """gpus,epoch time (min),speedup
1,10.0,1
2,5.3,1.89
4,2.9,4.45"""),
    "round 1, 17": ("uneven epochs", 5, """epoch,seconds
1,50
2,31
3,30
4,62
5,31"""),
    "round 1, 18": ("wrong global batch", 3, """gpus_total,nodes,batch_per_gpu,global_batch
8,2,64,512
16,4,64,512"""),
    "round 1, 19": ("input-bound baseline", 2, """model,gpus,img/s
ResNet50,1,66.1
VGG16,1,63.9
InceptionV3,1,44.4"""),
    "round 1, 20": ("wrong bandwidth", 3, """message (MiB),GPUs,time (ms),bus bandwidth (GB/s)
64,4,10,6.7
64,4,10,20.1"""),
    "round 2, 1": ("efficiency above 1", 2, """Batch size,1 GPU (s),2 GPUs (s),4 GPUs (s)
32,48.6,30.8,9.8
128,27.2,20.9,19.9"""),
    "round 2, 2": ("wrong speedup", 3, """#GPUs;Zeit/Epoche (s);Speedup
1;182,4;1,000
2;94,1;0,516
4;49,7;0,272"""),
    "round 2, 3": ("slower than in turns", 3, """Workers,Throughput [img/s],Scaling
1,500,100%
2,180,18%"""),
    "round 2, 4": ("steps of other workers", 3, """nodes,tasks per node,GPUs,logged steps,epochs,images,batch per GPU
1,1,1,18750,40,60000,128
2,1,2,3120,40,60000,128"""),
    "round 2, 5": ("bandwidth above the machine's", 2, """ranks,bandwidth [Gbit/s],link [Gbit/s]
2,14,10"""),
    "round 2, 6": ("identical clocks", 2, """seed,workers,epoch time (s)
1,4,12.73
2,4,12.73
3,4,12.73
4,4,12.73"""),
    "round 2, 7": ("wrong efficiency", 4, """GPUs,wall time (min),speedup,efficiency
1,30.0,1.0,100 %
2,16.0,1.9,94 %
4,9.0,3.3,93 %"""),
    "round 2, 8": ("uneven epochs", 6, """epoch,sec
1,14.1
2,9.2
3,9.1
4,9.3
5,15.2"""),
    "round 2, 9": ("bandwidth above the machine's", 2, """batch,gpus,epoch_s,comm_s,busbw_GBps,gradients_MB,images
64,4,40.0,0.2,600,44.7,50000"""),
    "round 2, 10": ("efficiency above 1", 3, """gpus,total images/s,images/s per gpu
1,410,410
2,1300,650"""),
    "round 2, 11": ("wrong speedup", 4, """procs,time,speed-up
1,1:40,1
2,0:53,1.88
4,0:29,1.83"""),
    "round 2, 12": ("bytes by batch", 2, """batch size,bytes per step (all-reduce)
32,39915000
64,19968144"""),
    "round 2, 13": ("difference within noise", 2, """GPUs,acc
1,0.9903
2,0.9901
4,0.9906"""),
    "round 2, 14": ("wrong speedup", 4, """config,img/s,speedup
1 GPU,219,1
2 GPUs,431,1.97
4 GPUs,850,1.97"""),
    "round 2, 15": ("efficiency above 1", 3, """workers,learning rate,train time (s),accuracy
1,5e-4,581,0.97
4,1e-1,63,0.98"""),
    "round 2, 16": ("parts that do not sum", 2, """gpus,epoch (s),compute (s),comm (s),input (s)
2,30.8,17.7,0.15,0.2"""),
    "round 2, 17": ("efficiency above 1", 3, """GPUs,Speedup,Efficiency
1,1.00,1.00
2,1.74,1.74
4,3.10,0.78"""),
    "round 2, 18": ("efficiency above 1", 3, """Nodes,Speedup
1,1
8,10.56"""),
    "round 2, 19": ("wrong speedup", 4, """gpus,epoch_time_ms,speedup
1,"41,300",1
2,"22,100",1.87
4,"12,900",1.71"""),
    "round 2, 20": ("bandwidth above the machine's", 2, """workers;Bytes;Zeit (ms);Busbandbreite (GB/s)
4;100.000.000;2,0;524,0"""),
    "round 3, 1": ("wrong speedup", 4, """Workers;Sekunden/Epoche;Beschleunigung
1;100,0;1
2;52,5;1,905x
4;28,75;1,826x
8;16,243;1,770x"""),
    "round 3, 2": ("wrong speedup", 3, """GPUs,Epoch Time [min],Speed-Up
1,1.6667,1.0
2,0.875,0.525
4,0.4792,0.2875"""),
    "round 3, 3": ("bandwidth above the machine's", 2, """num_workers,msg_bytes,t_s,bus_bw_GBps
2,104857600,0.0002,524"""),
    "round 3, 4": ("slower than in turns", 3, """procs,avg_epoch_s
1,8.2
2,20.6"""),
    "round 3, 5": ("uneven epochs", 4, """epoch,epoch_ms
1,"12,100"
2,"8,020"
3,"13,400"
4,"8,110"\n"""),
    "round 3, 6": ("identical clocks", 2, """run,gpus,seed,images/s
a,4,1,1423.718
b,4,2,1423.718"""),
    "round 3, 7": ("efficiency above 1", 3, """nodes;GPUs gesamt;Beschleunigung
1;1;1
8;8;10,56"""),
    "round 3, 8": ("changed learning rate", 3, """gpus,lr,time to train (s)
1,0.0005,581
2,0.1,300
4,0.1,174"""),
    "round 3, 9": ("efficiency above 1", 4, """GPUs,img/s,speedup
1,219,1
4,850,"3,880"
8,1667,9.91"""),
    "round 3, 10": ("wrong bandwidth", 2, """batch,gpus,epoch (s),communication (s),achieved bandwidth (GB/s)
32,2,30.82,0.1495,1.191
128,2,20.92,0.04956,3.592
512,2,15.66,0.03411,5.218"""),
    "round 3, 11": ("steps of other workers", 3, """nodes,gpus,steps,epochs,batch size,images
1,1,18750,40,128,60000
2,2,3120,40,128,60000"""),
    "round 3, 12": ("efficiency above 1", 4, """workers,efficiency (%)
1,100
2,98
4,147"""),
    "round 3, 13": ("wrong speedup", 3, """gpus,throughput_per_gpu,total_throughput,speedup
1,400,400,1
2,380,760,0.95
4,350,1400,0.875"""),
    "round 3, 14": ("difference within noise", 2, """GPUs;Genauigkeit
1;0,9902
2;0,9905"""),
    "round 3, 15": ("bytes by batch", 2, """batch,allreduce_MB_per_epoch,allreduce_MB_per_step
32,39.9,0.0213
64,20.0,0.0107"""),
    "round 3, 16": ("wrong global batch", 4, """GPUs,batch/GPU,Total batch
1,64,64
2,64,128
4,64,128"""),
    "round 3, 17": ("parts that do not sum", 3, """workers,epoch_s,compute_s,comm_s,input_s,other_s
1,40,35,0,4,1
2,25,18,6,4,1"""),
    "round 3, 18": ("wrong speedup", 3, """Batch size,time 1 GPU (s),time 2 GPUs (s),speedup 2 GPUs
32,48.6,30.8,1.58
128,27.2,20.9,1.47"""),
    "round 3, 19": ("bandwidth above the machine's", 2, """network,nodes,ranks,busbw [Gbit/s]
1 Gbit/s Ethernet,2,2,9.1"""),
    "round 3, 20": ("impossible figure", 3, """gpus,val_acc
1,0.91
2,1.04"""),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_mistake_of_a_wrong_table_is_found(name, tmp_path):
    rule, line, table = WRONG[name]
    (tmp_path / "wrong.csv").write_text(table)
    result = checker.check_csv(tmp_path / "wrong.csv")
    assert (rule, line) in {(finding.rule, row) for finding in result for row in finding.rows}
