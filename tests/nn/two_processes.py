"""Half of a training step, for one of two processes: a module of its own, because both have to import it."""

import os
import sys

import torch
from torch.distributed import destroy_process_group, init_process_group

from pprgnn.nn import PPRConv

EDGES = torch.tensor([[0, 1, 1, 2, 3, 3, 4, 5, 5], [1, 0, 2, 1, 3, 4, 3, 4, 0]])


def half(rank):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(7, 4, dtype=torch.float64, generator=generator), EDGES


def layer():
    torch.manual_seed(1)
    return PPRConv(4, 6, eps=0.5, learn_eps=True, tol=1e-12).double()


def train(rank, store, folder):
    torch.set_num_threads(1)
    init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    conv = layer()
    model = torch.compile(torch.nn.parallel.DistributedDataParallel(conv), backend="aot_eager")
    model(*half(rank)).square().sum().backward()
    if rank == 0:
        torch.save([parameter.grad for parameter in conv.parameters()], f"{folder}/grad.pt")
    destroy_process_group()
    # At once: the reducer would wait for torch's communication thread with Python's lock held, which that thread
    # may need to let go of what the compiler left in it.
    sys.stdout.flush()
    os._exit(0)
