"""The paper's networks are the paper's: sizes by hand, outputs by dense matrices, weights from the right range."""

import pytest
import torch
from torch.nn.functional import elu

from pprgnn.nn import CoPurchaseNet, PaperGraphNet, PPINet

N = 7
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0, 2], [1, 2, 3, 4, 5, 6, 0, 3, 5]])
EDGES = torch.cat([EDGES, EDGES.flip(0)], dim=1)


def normalized(self_loops: bool) -> torch.Tensor:
    a = torch.zeros(N, N, dtype=torch.float64)
    a[EDGES[1], EDGES[0]] = 1.0
    if self_loops:
        a += torch.eye(N, dtype=torch.float64)
    scale = torch.diag(a.sum(1) ** -0.5)
    return scale @ a @ scale


def infinite(a, b, weight, eps, depth=120):
    """The recursion with everything written out: the input term is smoothed, then 120 steps of ReLU."""
    b = a @ b
    g = torch.zeros_like(b)
    for n in range(depth, -1, -1):
        g = torch.relu(a @ g @ weight / (1 + n * eps) + b)
    return g


def test_ppi_net_is_five_layers_beside_linear_ones():
    torch.manual_seed(0)
    net = PPINet(6, 5, hidden=3, tol=1e-10).double()
    torch.nn.init.constant_(net.skips[4].bias, -5.0)  # ELU after the last layer would stop at -1
    x = torch.randn(N, 6, dtype=torch.float64)
    a, state = normalized(self_loops=False), x
    for i in range(5):
        omega, weight = net.convs[i].lin.weight, net.convs[i].weight
        skip = state @ net.skips[i].weight.t() + net.skips[i].bias
        state = infinite(a, state @ omega.t(), weight, 0.25) + skip
        if i < 4:
            state = elu(state)
    torch.testing.assert_close(net(x, EDGES), state, atol=1e-7, rtol=1e-7)
    assert bool((state < -1).any())


def test_co_purchase_net_is_one_layer_over_learned_rows():
    torch.manual_seed(0)
    net = CoPurchaseNet(N, 4, hidden=5, tol=1e-10).double().eval()
    state = infinite(normalized(self_loops=False), net.embedding.weight, net.conv.weight, 0.06, 500)
    torch.testing.assert_close(net(None, EDGES), state @ net.head.weight.t(), atol=1e-7, rtol=1e-7)
    torch.manual_seed(1)
    net.train()
    assert not torch.equal(net(None, EDGES), net(None, EDGES))  # dropout before the head


def test_paper_graph_net_is_three_layers_a_sum_and_two_linear_ones():
    torch.manual_seed(0)
    net = PaperGraphNet(4, 2, hidden=6, tol=1e-10).double().eval()
    x = torch.randn(N, 4, dtype=torch.float64)
    batch = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    state = x
    for conv in net.convs:
        state = infinite(normalized(self_loops=True), state @ conv.lin.weight.t(), conv.weight, 1.0)
    pooled = torch.stack([state[:4].sum(0), state[4:].sum(0)])
    hidden, out = net.head.hidden[0], net.head.out
    expected = torch.relu(pooled @ hidden.weight.t() + hidden.bias) @ out.weight.t() + out.bias
    torch.testing.assert_close(net(x, EDGES, None, batch), expected, atol=1e-7, rtol=1e-7)


def count(net) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize(("features", "classes", "h"), [(50, 121, 8), (7, 3, 2)])
def test_sizes_of_ppi_net(features, classes, h):
    net = PPINet(features, classes, hidden=h)
    sizes = [(features, 4 * h), (4 * h, 2 * h), (2 * h, 2 * h), (2 * h, h), (h, classes)]
    # Per layer: Ω, W, and beside them a linear layer with bias.
    assert count(net) == sum(size * out + out * out + size * out + out for size, out in sizes)
    assert [tuple(conv.weight.shape) for conv in net.convs] == [(out, out) for _, out in sizes]
    names = {f"{part}.{i}.{leaf}" for i in range(5) for part, leaf in [("skips", "weight"), ("skips", "bias")]}
    names |= {f"convs.{i}.{leaf}" for i in range(5) for leaf in ("weight", "lin.weight")}
    assert {name for name, _ in net.named_parameters()} == names
    assert PPINet(50, 121).convs[0].out_channels == 1024


def test_sizes_of_the_others():
    net = CoPurchaseNet(11, 4, hidden=5)
    assert count(net) == 11 * 5 + 5 * 5 + 5 * 4
    assert {name for name, _ in net.named_parameters()} == {"embedding.weight", "conv.weight", "head.weight"}
    assert (net.num_nodes, net.conv.out_channels, CoPurchaseNet(11, 4).conv.out_channels) == (11, 5, 128)
    net = PaperGraphNet(7, 2, hidden=6)
    assert count(net) == (7 * 6 + 36) + 2 * (36 + 36) + (36 + 6) + (6 * 2 + 2)
    assert PaperGraphNet(7, 2).head.out.in_features == 64


def test_options_may_be_overridden():
    net = PPINet(4, 3, hidden=2, eps=0.5, add_self_loops=True, learn_eps=True)
    assert net.adjacency_options == {"normalize": "sym", "add_self_loops": True}
    assert [round(float(conv.eps.detach()), 4) for conv in net.convs] == [0.5] * 5
    with pytest.raises(TypeError, match="epss"):
        PPINet(4, 3, hidden=2, epss=0.5)


def drawn_evenly(tensor: torch.Tensor, bound: float) -> bool:
    """Within ±bound, up to the edge of it, and with the variance bound²/3 of an even draw."""
    largest = float(tensor.detach().abs().max())
    variance = float(tensor.detach().square().mean())
    return 0.97 * bound < largest <= bound and abs(variance / (bound**2 / 3) - 1) < 0.1


@pytest.mark.parametrize("again", [False, True])
def test_weights_are_drawn_as_in_the_published_code(again):
    torch.manual_seed(0)
    nets = PPINet(60, 50, hidden=24), CoPurchaseNet(100, 3, hidden=40), PaperGraphNet(60, 2, hidden=50)
    if again:
        for net in nets:
            net.reset_parameters()
    ppi, co_purchase, graph = nets
    for conv in [*ppi.convs, *graph.convs]:
        bound = conv.out_channels**-0.5
        assert drawn_evenly(conv.weight, bound)
        assert drawn_evenly(conv.lin.weight, bound)
    assert drawn_evenly(co_purchase.conv.weight, 40**-0.5)
    assert drawn_evenly(co_purchase.embedding.weight, 40**-0.5)
