"""The same ten steps in PyTorch with DistributedDataParallel (DDP): every process runs this script, one per worker.

    torchrun --nproc-per-node 2 examples/lab13_elsewhere/pytorch_ddp.py FOLDER

Reads FOLDER/start.npz and writes FOLDER/ddp.npz. Needs torch (`pip install torch`), and neither TensorFlow nor Horovod.
"""

import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Flatten(nn.Module):
    """Flattens images as Keras does, channels last: PyTorch's have them first."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


TO_PYTORCH = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}  # Order of a weight's axes, by their number.
TO_KERAS = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}

folder, start = sys.argv[1], np.load(f"{sys.argv[1]}/start.npz")
batch_size, base_lr, momentum = int(start["batch_size"]), float(start["base_lr"]), float(start["momentum"])

dist.init_process_group("gloo")  # Like hvd.init(). Use "nccl" on GPUs.
rank, size = dist.get_rank(), dist.get_world_size()
network = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), Flatten(),
                        nn.Linear(1152, 10))
for number, parameter in enumerate(network.parameters()):
    weight = start[f"weight{number}"]
    parameter.data = torch.tensor(weight.transpose(TO_PYTORCH[weight.ndim]).copy())
model = DistributedDataParallel(network)  # As the broadcast and hvd.DistributedOptimizer: in the backward pass.
optimizer = torch.optim.SGD(model.parameters(), base_lr, momentum)
images = torch.tensor(start["images"][rank::size].transpose(0, 3, 1, 2))  # As in Horovod: shard the data yourself.
labels = torch.tensor(start["labels"][rank::size]).long()
for batch in zip(images.split(batch_size), labels.split(batch_size), strict=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()  # The all-reduce runs in here.
    optimizer.step()
if rank == 0:
    weights = [parameter.detach().numpy() for parameter in network.parameters()]
    weights = [weight.transpose(TO_KERAS[weight.ndim]) for weight in weights]
    np.savez(f"{folder}/ddp.npz", *weights, workers=size, version=f"PyTorch {torch.__version__}")
dist.destroy_process_group()
