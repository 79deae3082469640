"""The same training with PyTorch's DistributedDataParallel over Gloo, as in its tutorial.

    torchrun --nproc-per-node 2 -m benchmarks.contenders.ddp NETWORK
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from benchmarks import cases


def network(name: str) -> nn.Module:
    convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    body = {
        "mlp": [nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)],
        "mnist_cnn": [*convolutions, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)],
        "wide_cnn": [*convolutions, nn.Flatten(), nn.Linear(9216, 640), nn.ReLU(), nn.Linear(640, 10)],
    }[name]
    return nn.Sequential(*body)


def train(name: str, batch_size: int) -> None:
    size = dist.get_world_size()
    x, y = cases.images(cases.STEPS[name] * batch_size * size)
    images = TensorDataset(torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(y))
    sampler = DistributedSampler(images)
    loader = DataLoader(images, batch_size, sampler=sampler)
    model = DistributedDataParallel(network(name))
    optimizer = torch.optim.SGD(model.parameters(), cases.LEARNING_RATE * size, cases.MOMENTUM)
    ends = []
    for epoch in range(cases.EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        ends.append(time.perf_counter())
    if dist.get_rank() == 0:
        cases.show(f"{name}, batch {batch_size}", len(x) / ((ends[-1] - ends[0]) / (cases.EPOCHS - 1)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for batch_size in cases.BATCH_SIZES:
        train(sys.argv[1], batch_size)
    dist.destroy_process_group()
