"""What the values of a convolution may depend on, and what they may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch_geometric import EdgeIndex

from pprgnn.testing.trial import SINGLE_TOL, Trial, draw_pair, go_back, having, need, side_by_side

OTHER_FLOW = {"source_to_target": "target_to_source", "target_to_source": "source_to_target"}


def output_shape(trial: Trial) -> None:
    """The output is one tensor of shape (num_nodes, out_channels)."""
    graph = trial.graph()
    weights = {"edge_weight": graph.edge_weight} if trial.takes_weight else {}
    out = trial.conv()(graph.x, graph.edge_index, **weights)
    assert isinstance(out, torch.Tensor), f"The output is a {type(out).__name__} instead of one tensor."
    expected = (graph.num_nodes, trial.out_channels)
    assert out.shape == expected, f"The output has shape {tuple(out.shape)} instead of {expected}."


def sparse_layouts(trial: Trial) -> None:
    """A sparse COO or CSR matrix (transposed, as in PyG) gives the values of edge_index."""
    _check_layouts(trial, "COO", "CSR")


def csc_layout(trial: Trial) -> None:
    """A sparse CSC matrix (transposed, as in PyG) gives the values of edge_index."""
    _check_layouts(trial, "CSC")


def edge_index_class(trial: Trial) -> None:
    """PyG's own EdgeIndex, sorted or not, gives the values of the plain edge_index."""
    conv, graph = trial.conv(), trial.graph()
    expected = trial.run(conv, graph)
    size = (graph.num_nodes, graph.num_nodes)
    for options in ({}, {"sparse_size": size}, {"sparse_size": size, "sort_order": "row"}):
        out = trial.run(conv, replace(graph, edge_index=EdgeIndex(graph.edge_index, **options)))
        trial.same(out, expected, f"An EdgeIndex with {options or 'no options'} gives other values.")


def self_loops(trial: Trial) -> None:
    """A self-loop that the graph already has means the same in edge_index and in sparse matrices."""
    conv, graph = trial.conv(), trial.graph(symmetric=True, self_loop=True)
    expected, layouts = trial.run(conv, graph), graph.sparse(trial.takes_weight)
    for name in ("COO", "CSR"):
        out = trial.run(conv, graph, layouts[name])
        trial.same(out, expected, f"A {name} matrix treats an existing self-loop differently.")


def edge_weight(trial: Trial) -> None:
    """Edge weights change the output, and weights of one are the same as none."""
    trial.need_weight()
    conv, graph = trial.conv(), trial.graph()
    without = trial.run(conv, graph, graph.edge_index)
    ones = replace(graph, edge_weight=torch.ones_like(graph.edge_weight))
    trial.same(trial.run(conv, ones), without, "Weights of one give other values than no weights.")
    change = float((trial.run(conv, graph) - without).detach().abs().max())
    assert change > trial.tol, "The edge weights make no difference to the output."


def dtype(trial: Trial) -> None:
    """The output has the precision of the input, and single precision agrees with double precision."""
    graph = trial.graph()
    out = {kind: trial.run(trial.conv(dtype=kind), graph.to(kind)) for kind in (torch.float32, torch.float64)}
    for kind, value in out.items():
        assert value.dtype == kind, f"Input in {kind} gives output in {value.dtype}."
    tol = max(trial.tol, SINGLE_TOL)
    trial.same(out[torch.float32], out[torch.float64], "float32 and float64 disagree.", tol)


def device(trial: Trial) -> None:
    """Parameters and output are on the device of the input: the CPU, and a GPU where there is one."""
    graph = trial.graph()
    expected = trial.run(trial.conv(), graph)
    for kind in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        where = torch.device(kind)
        conv = trial.conv().to(where)
        out = trial.run(conv, graph.to(where))
        for name, tensor in [("output", out), *conv.named_parameters(), *conv.named_buffers()]:
            assert tensor.device.type == kind, f"{name} is on {tensor.device} instead of {kind}."
        trial.same(out, expected, f"The values on {kind} are not those on the CPU.")


def default_device(trial: Trial) -> None:
    """Both passes make their tensors on the device of the input, whatever the default device is."""
    graph, conv = trial.graph(), trial.conv()
    expected, untouched = trial.run(trial.conv(), graph), graph.clone()  # a cached graph would hide the error
    untouched.x.requires_grad_()
    with torch.device("meta"), _NothingOnMeta():
        out = trial.run(conv, untouched)
        go_back(out)
    trial.same(out, expected, "Another default device changes the values.")


def strided_inputs(trial: Trial) -> None:
    """Inputs that are not contiguous, such as transposed tensors, give the same values."""
    conv, graph = trial.conv(), trial.graph()
    strided = replace(
        graph,
        x=graph.x.t().contiguous().t(),
        edge_index=graph.edge_index.t().contiguous().t(),
        edge_weight=graph.edge_weight.repeat_interleave(2)[::2],
    )
    trial.same(trial.run(conv, strided), trial.run(conv, graph), "Strided inputs give other values.")


def strided_parameters(trial: Trial) -> None:
    """Parameters that are not contiguous give the same values and gradients."""
    (conv, strided), graph = (trial.conv(), trial.conv()), trial.graph()
    for parameter in strided.parameters():
        parameter.data = parameter.data.mT.contiguous().mT if parameter.dim() > 1 else parameter.data
    trial.same(trial.run(strided, graph), trial.run(conv, graph), "Strided parameters give other values.")
    for layer in (conv, strided):
        go_back(trial.run(layer, graph))
    for (name, one), other in zip(conv.named_parameters(), strided.parameters(), strict=True):
        if one.grad is not None and other.grad is not None:
            trial.same(other.grad, one.grad, f"The gradient of a strided {name} is another one.")


def permutation(trial: Trial) -> None:
    """Renumbering nodes and reordering edges renumbers the output and changes nothing else."""
    conv = trial.conv()
    for graph in draw_pair(trial.in_channels):
        order = torch.randperm(graph.num_nodes)
        out = trial.run(conv, graph.permuted(order))
        trial.same(out, trial.run(conv, graph)[order], "The values depend on the order of nodes or edges.")


def batching(trial: Trial) -> None:
    """A batch of graphs gives what each graph gives alone."""
    conv, graphs = trial.conv(), [trial.graph(num_nodes) for num_nodes in (3, 6, 4)]
    alone = torch.cat([trial.run(conv, graph) for graph in graphs])
    trial.same(trial.run(conv, side_by_side(*graphs)), alone, "Graphs in one batch influence each other.")


def no_edges(trial: Trial) -> None:
    """A graph without edges is a graph: the output is finite and has a row for each node."""
    graph = trial.graph()
    graph = replace(graph, edge_index=graph.edge_index[:, :0], edge_weight=graph.edge_weight[:0])
    out = trial.run(trial.conv(), graph)
    assert out.size(0) == graph.num_nodes, f"There are {graph.num_nodes} nodes but {out.size(0)} rows come out."
    assert bool(out.isfinite().all()), "The output for a graph without edges is not finite."


def isolated_nodes(trial: Trial) -> None:
    """A node without edges gets a finite row and does not change the others."""
    conv, graph = trial.conv(), trial.graph()
    joined = replace(graph, x=torch.cat([graph.x, graph.x[:1]]))
    out = trial.run(conv, joined)
    assert out.size(0) == joined.num_nodes, f"There are {joined.num_nodes} nodes but {out.size(0)} rows come out."
    assert bool(out.isfinite().all()), "The output is not finite when one node has no edges."
    trial.same(out[:-1], trial.run(conv, graph), "A node without edges changes the rows of the others.")


def single_node(trial: Trial) -> None:
    """A graph of one node, with a self-loop as its only edge, gives one finite row."""
    graph = trial.graph(1, self_loop=True)
    out = trial.run(trial.conv(), graph)
    single = out.dim() == 2 and out.size(0) == 1
    assert single, f"A graph of one node gives an output of shape {tuple(out.shape)}."
    assert bool(out.isfinite().all()), "The output for a graph of one node is not finite."


def static_graph(trial: Trial) -> None:
    """Features of shape (batch, num_nodes, in_channels) give what each of them gives alone."""
    conv, graph = trial.conv(), trial.graph()
    stacked = replace(graph, x=torch.stack([graph.x, -graph.x, graph.x.flip(0)]))
    alone = torch.stack([trial.run(conv, replace(graph, x=x)) for x in stacked.x])
    trial.same(trial.run(conv, stacked), alone, "Stacked features give other values than one by one.")


def zeros_first(trial: Trial) -> None:
    """An input of zeros, as for a check of shapes, leaves no trace in later answers."""
    conv, graph = trial.conv(), trial.graph()
    trial.run(conv, replace(graph, x=torch.zeros_like(graph.x)))
    trial.same(trial.run(conv, graph), trial.run(trial.conv(), graph), "Zeros before an input change its output.")


def determinism(trial: Trial) -> None:
    """The same input gives the same output, also when another graph came in between."""
    conv, graph = trial.conv(), trial.graph()
    first = trial.run(conv, graph)
    trial.same(trial.run(conv, graph), first, "A second pass gives other values.")
    trial.run(conv, trial.graph(5))
    trial.same(trial.run(conv, graph), first, "Another graph in between changes the values.")


def gradient_modes(trial: Trial) -> None:
    """The values are the same under torch.no_grad and torch.inference_mode."""
    conv, graph = trial.conv(), trial.graph()
    expected = trial.run(conv, graph)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = trial.run(conv, graph.clone())
        trial.same(out, expected, f"The values under torch.{mode.__name__} are others.")


def flow(trial: Trial) -> None:
    """With the other flow, such as 'target_to_source', messages go against the edges."""
    conv, graph = trial.conv(), trial.graph()
    parts = [part for part in having(conv, "flow", str) if part.flow in OTHER_FLOW]
    need(parts, "the layer has no flow")
    expected = trial.run(conv, graph.reversed())
    for part in parts:
        part.flow = OTHER_FLOW[part.flow]
    trial.same(trial.run(conv, graph), expected, "The other flow differs from reversed edges.")


def _check_layouts(trial: Trial, *names: str) -> None:
    conv = trial.conv()
    for graph in draw_pair(trial.in_channels):
        expected, layouts = trial.run(conv, graph), graph.sparse(trial.takes_weight)
        for name in names:
            trial.same(trial.run(conv, graph, layouts[name]), expected, f"A {name} matrix gives other values.")


class _NothingOnMeta(TorchFunctionMode):
    # Stops at once: a compiled kernel that is handed a tensor without memory takes the whole process with it.
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.is_meta and out.numel():
            raise AssertionError(
                f"{func.__name__} makes a tensor of shape {tuple(out.shape)} on the default device."
            )
        return out
