"""A convolution without fault, and one for every fault."""

import copy

import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn import Linear
from torch_geometric.utils import is_torch_sparse_tensor


class GoodConv(torch.nn.Module):
    """tanh((A + I) X W), with a dense A: plain, so that each fault below is a few lines."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = Linear(in_channels, out_channels)
        self.flow, self.cached, self.kept = "source_to_target", False, None
        self.hooks = []

    def register_message_forward_hook(self, hook):
        self.hooks.append(hook)

    def reset_parameters(self):
        self.lin.reset_parameters()
        self.kept = None

    def forward(self, x, edge_index, edge_weight=None):
        if isinstance(x, tuple):
            raise ValueError("A tuple of features came, but this layer is not bipartite.")
        matrix = self.matrix(x, edge_index, edge_weight)
        if self.cached:
            matrix = self.kept = matrix if self.kept is None else self.kept
        for hook in self.hooks:
            hook(self, matrix)
        return self.combine(matrix, self.lin(x))

    def matrix(self, x, edge_index, edge_weight):
        if is_torch_sparse_tensor(edge_index):
            return self.from_sparse(edge_index)
        if isinstance(edge_index, EdgeIndex):
            edge_index = self.from_edge_index(edge_index)
        num_nodes = x.size(-2)
        self.validate(edge_index, num_nodes)
        if edge_weight is None:
            edge_weight = x.new_ones(edge_index.size(1))
        target, source = edge_index if self.flow == "target_to_source" else edge_index.flip(0)
        return x.new_zeros(num_nodes, num_nodes).index_put((target, source), edge_weight)

    def from_edge_index(self, edge_index):
        return edge_index.as_tensor()

    def from_sparse(self, adj_t):
        return adj_t.to_dense()

    def validate(self, edge_index, num_nodes):
        if edge_index.numel() and not 0 <= edge_index.min() <= edge_index.max() < num_nodes:
            raise ValueError(f"Node ids must be below {num_nodes}.")

    def combine(self, matrix, h):
        return 1 * torch.tanh(matrix @ h + h)  # not what tanh keeps for its gradient: that must not be changed


class ReturnsTuple(GoodConv):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs), 3


class HasOneChannelTooMany(GoodConv):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels + 1)


class ReadsCOOTransposed(GoodConv):
    def from_sparse(self, adj_t):
        return adj_t.to_dense().t() if adj_t.layout == torch.sparse_coo else adj_t.to_dense()


class RefusesCSC(GoodConv):
    def from_sparse(self, adj_t):
        if adj_t.layout == torch.sparse_csc:
            raise NotImplementedError("no CSC")
        return adj_t.to_dense()


class AddsToSelfLoopsOfMatrices(GoodConv):
    def from_sparse(self, adj_t):
        matrix = adj_t.to_dense()
        return matrix + matrix.diagonal().sign().diag()


class IgnoresWeights(GoodConv):
    def matrix(self, x, edge_index, edge_weight):
        return super().matrix(x, edge_index, edge_weight).sign()


class TakesNoWeightAsHalf(GoodConv):
    def matrix(self, x, edge_index, edge_weight):
        if edge_weight is None and not is_torch_sparse_tensor(edge_index):
            edge_weight = x.new_full((edge_index.size(1),), 0.5)
        return super().matrix(x, edge_index, edge_weight)


class DetachesWeights(GoodConv):
    def matrix(self, x, edge_index, edge_weight):
        return super().matrix(x, edge_index, edge_weight).detach()


class AlwaysAnswersInDouble(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, h).double()


class LosesPrecision(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, h.bfloat16().float() if h.dtype == torch.float32 else h)


class LeavesBufferOnOtherDevice(GoodConv):
    def __init__(self, *channels):
        super().__init__(*channels)
        self.register_buffer("far", torch.ones(2, device="meta"))

    def _apply(self, function, recurse=True):
        return super()._apply(lambda tensor: tensor if tensor.is_meta else function(tensor), recurse)


class UsesDefaultDevice(GoodConv):
    def combine(self, matrix, h):
        return 1 * torch.tanh((matrix + torch.eye(matrix.size(0), dtype=h.dtype)) @ h)


class AssumesContiguousFeatures(GoodConv):
    def forward(self, x, *args, **kwargs):
        if isinstance(x, torch.Tensor) and x.dim() == 2:
            x = x.as_strided(x.shape, (x.size(1), 1))
        return super().forward(x, *args, **kwargs)


class PrefersLowIds(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix + matrix.tril(), h)


class ScalesByNumberOfEdges(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, h) * int(matrix.count_nonzero())


class NeedsAnEdge(GoodConv):
    def validate(self, edge_index, num_nodes):
        edge_index.max()  # torch: of an empty tensor there is none
        super().validate(edge_index, num_nodes)


class CountsNodesByEdges(GoodConv):
    def forward(self, x, edge_index, edge_weight=None):
        out = super().forward(x, edge_index, edge_weight)
        counts = edge_index.numel() and not is_torch_sparse_tensor(edge_index)
        return out[..., : int(edge_index.max()) + 1, :] if counts else out


class SqueezesOneNode(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, h).squeeze(0)


class RefusesStacks(GoodConv):
    def forward(self, x, *args, **kwargs):
        if isinstance(x, torch.Tensor) and x.dim() != 2:
            raise ValueError("x must have two dimensions.")
        return super().forward(x, *args, **kwargs)


class DriftsWithEachPass(GoodConv):
    passes = 0

    def combine(self, matrix, h):
        self.passes += 1
        return super().combine(matrix, h) + 1e-3 * self.passes


class DiffersWithoutGradient(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, h) * (2 if torch.is_inference_mode_enabled() else 1)


class IgnoresFlow(GoodConv):
    def matrix(self, x, edge_index, edge_weight):
        flow, self.flow = self.flow, "source_to_target"
        matrix = super().matrix(x, edge_index, edge_weight)
        self.flow = flow
        return matrix


class NeedsChannels(GoodConv):
    def __init__(self, in_channels, out_channels):
        if in_channels < 1:
            raise ValueError("in_channels must be positive.")
        super().__init__(in_channels, out_channels)


class KnowsGraphByObject(GoodConv):
    known = None

    def matrix(self, x, edge_index, edge_weight):
        if edge_weight is not None and edge_weight.requires_grad:
            return super().matrix(x, edge_index, edge_weight)
        key = (edge_index, edge_weight, x.size(-2), self.flow)
        if self.known is None or any(a is not b for a, b in zip(key, self.known[0], strict=True)):
            self.known = (key, super().matrix(x, edge_index, edge_weight))
        return self.known[1]


class KnowsMatrixByObject(KnowsGraphByObject):
    def matrix(self, x, edge_index, edge_weight):
        room = KnowsGraphByObject if is_torch_sparse_tensor(edge_index) else GoodConv
        return room.matrix(self, x, edge_index, edge_weight)


class IgnoresCached(GoodConv):
    def forward(self, *args, **kwargs):
        self.kept = None
        return super().forward(*args, **kwargs)


class ResetsWeightOnly(GoodConv):
    def reset_parameters(self):
        bias = self.lin.bias.detach().clone()
        super().reset_parameters()
        with torch.no_grad():
            self.lin.bias.copy_(bias)


class ResetKeepsCache(GoodConv):
    def reset_parameters(self):
        kept = self.kept
        super().reset_parameters()
        self.kept = kept


class ResetsToInfinity(GoodConv):
    def reset_parameters(self):
        super().reset_parameters()
        torch.nn.init.constant_(self.lin.bias, float("inf"))


class TellsPassesInRepr(GoodConv):
    passes = 0

    def combine(self, matrix, h):
        self.passes += 1
        return super().combine(matrix, h)

    def __repr__(self):
        return f"TellsPassesInRepr({self.passes})"


class HidesItsName(GoodConv):
    def __repr__(self):
        return "Conv()"


class KeepsTensorOutOfState(GoodConv):
    def __init__(self, *channels):
        self.scale = None
        scale = torch.rand(())
        super().__init__(*channels)
        self.scale = scale

    def combine(self, matrix, h):
        return super().combine(matrix * self.scale, h)


class SharesParametersWithCopies(GoodConv):
    def __deepcopy__(self, memo):
        return copy.copy(self)


class KeepsItsOutput(GoodConv):
    last = None

    def combine(self, matrix, h):
        self.last = super().combine(matrix, h)
        return self.last


class HoldsLambda(GoodConv):
    def __init__(self, *channels):
        super().__init__(*channels)
        self.phi = lambda h: h


class ClampsWeightsInPlace(GoodConv):
    def matrix(self, x, edge_index, edge_weight):
        if edge_weight is not None:
            with torch.no_grad():
                edge_weight.clamp_(max=2.0)
        return super().matrix(x, edge_index, edge_weight)


class ScalesGradient(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, 1.5 * h - 0.5 * h.detach())


class DetachesFeatures(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, h.detach())


class HasUnusedParameter(GoodConv):
    def __init__(self, *channels):
        super().__init__(*channels)
        self.unused = torch.nn.Parameter(torch.zeros(3))

    def reset_parameters(self):
        super().reset_parameters()
        if hasattr(self, "unused"):
            torch.nn.init.zeros_(self.unused)


class LeaksGradientBetweenComponents(GoodConv):
    def combine(self, matrix, h):
        mean = 1e-6 * h.mean(-2, keepdim=True)
        return super().combine(matrix, h + mean - mean.detach())


class CutsColumns(GoodConv):
    def forward(self, x, *args, **kwargs):
        width = self.lin.in_channels
        if isinstance(x, torch.Tensor) and width > 0:
            x = x[..., :width]
        return super().forward(x, *args, **kwargs)


class WrapsNegativeIds(GoodConv):
    def validate(self, edge_index, num_nodes):
        if edge_index.numel():
            super().validate(edge_index.clamp(min=0), num_nodes)


class CrashesOnIds(GoodConv):
    def validate(self, edge_index, num_nodes):
        if edge_index.numel() and not 0 <= edge_index.min() <= edge_index.max() < num_nodes:
            raise IndexError("out of bounds for dimension 0")


class HidesNaN(GoodConv):
    def combine(self, matrix, h):
        return super().combine(matrix, h.nan_to_num())


class CrashesOnTuples(GoodConv):
    def forward(self, x, *args, **kwargs):
        x.size(0)
        return super().forward(x, *args, **kwargs)


class RefusesEdgeIndex(GoodConv):
    def from_edge_index(self, edge_index):
        raise TypeError("no EdgeIndex")


class SortsEdgeIndexWrongly(GoodConv):
    def from_edge_index(self, edge_index):
        edges = edge_index.as_tensor()
        return edges.flip(0) if edge_index.is_sorted_by_row else edges


class AssumesContiguousWeights(GoodConv):
    def combine(self, matrix, h):
        weight = self.lin.weight
        read = weight.as_strided(weight.shape, (weight.size(1), 1)) if weight.dim() == 2 else weight
        return super().combine(matrix, h) + (read - weight).square().sum()


class StopsAtZeros(GoodConv):
    stopped = False

    def combine(self, matrix, h):
        out = super().combine(matrix, h)
        self.stopped = self.stopped or bool((h == self.lin.bias).all())
        return 0 * out if self.stopped else out


class KnowsGraphByVersion(KnowsGraphByObject):
    versions = None

    def matrix(self, x, edge_index, edge_weight):
        if is_torch_sparse_tensor(edge_index) or edge_index.is_inference():
            return GoodConv.matrix(self, x, edge_index, edge_weight)
        versions = edge_index._version, None if edge_weight is None else edge_weight._version
        if versions != self.versions:
            self.known, self.versions = None, versions
        return super().matrix(x, edge_index, edge_weight)


class IgnoresHooks(GoodConv):
    def register_message_forward_hook(self, hook):
        pass


class KeepsItsOutputForTheGradient(GoodConv):
    def combine(self, matrix, h):
        return torch.tanh(matrix @ h + h)


class _OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return torch.tanh(z)

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 - torch.tanh(ctx.saved_tensors[0].detach()) ** 2)


class ForgetsSecondGradient(GoodConv):
    def combine(self, matrix, h):
        return 1 * _OnceOnly.apply(matrix @ h + h)
