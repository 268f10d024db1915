"""Small random graphs, and what is done with them written as dense matrices."""

import torch

N, FEATURES, CLASSES = 14, 5, 3


def graph(seed=0, nodes=N, edges=24, directed=False):
    """Edges, weights and features in float64; the last node is alone."""
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes - 1, (2, edges), generator=draw)
    pairs = pairs[:, pairs[0] < pairs[1]].unique(dim=1)
    weight = torch.rand(pairs.size(1), generator=draw, dtype=torch.float64) + 0.2
    x = torch.randn(nodes, FEATURES, generator=draw, dtype=torch.float64)
    if directed:
        return pairs, weight, x
    return torch.cat([pairs, pairs.flip(0)], dim=1), weight.repeat(2), x


def matrix(edge_index, weight=None, nodes=N):
    """A: entry (i, j) is the weight of the edge j -> i."""
    dense = torch.zeros(nodes, nodes, dtype=torch.float64)
    for number, (source, target) in enumerate(edge_index.t().tolist()):
        dense[target, source] += 1.0 if weight is None else weight[number]
    return dense


def normalized(edge_index, weight=None, nodes=N):
    """D^-1/2 (A + I) D^-1/2 for a graph without self-loops."""
    dense = matrix(edge_index, weight, nodes) + torch.eye(nodes, dtype=torch.float64)
    scale = dense.sum(1).rsqrt()
    return scale[:, None] * dense * scale[None, :]


def build(kind, task="node", seed=0, **options):
    """A network in float64 that evaluates, with biases that are not 0."""
    torch.manual_seed(seed)
    network = kind(FEATURES, CLASSES, task, **options).double().eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return network
