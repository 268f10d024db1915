"""Every system that can be trained: ours, and those it is compared with. `pprgnn models` lists them.

Imports neither torch nor PyG.
"""

from __future__ import annotations

import difflib
from typing import Any

from pprgnn.training.errors import TrainingError
from pprgnn.training.option import option
from pprgnn.training.system import System, choice, options

__all__ = ["SYSTEMS", "System", "find_system", "find_systems"]

# fmt: off
# Papers of more than one system.
PAGERANK: dict[str, Any] = {
    "paper": "Transforming PageRank into an Infinite-Depth Graph Neural Network",
    "year": 2022, "link": "https://arxiv.org/abs/2207.00684",
}
CONVOLUTION: dict[str, Any] = {
    "paper": "Semi-Supervised Classification with Graph Convolutional Networks",
    "year": 2017, "link": "https://arxiv.org/abs/1609.02907",
}
PREDICT: dict[str, Any] = {
    "paper": "Predict then Propagate: Graph Neural Networks meet Personalized PageRank",
    "year": 2019, "link": "https://arxiv.org/abs/1810.05997",
}
KERNEL: dict[str, Any] = {"kind": "kernel", "tasks": ("graph",), "edge_weights": False, "reads": ()}
AROUND = (  # what the networks around an infinite-depth layer read
    *("architecture", "hidden", "layers", "norm", "dropout", "input_dropout", "input_layer", "residual", "jk"),
    *("pooling", "self_loops", "normalize", "smooth_input", "bias", "depth", "max_depth"),
)
STACK = ("hidden", "layers", "dropout", "input_dropout", "pooling")


def _acceleration() -> Any:
    text = "to the same equilibrium in fewer steps, by mixtures of earlier states; none: plain steps"
    return choice(text, "anderson", "none")


def _gamma() -> Any:
    return option(0.8, "how much of a message survives a step", above=0, most=0.999)


ANY_CONV = options(
    conv=choice("which convolution of PyG", "gcn", "gat", "gatv2", "gin", "sage", "graph", "transformer"),
    heads=option(4, "heads of gat, gatv2 and transformer; they share the width", least=1),
)
SYSTEMS: tuple[System, ...] = (
    # ---- Layers of infinite depth: ours and the others that can take its place.
    System(
        name="pprgnn", title="PPRGNN", **PAGERANK, kind="infinite",
        summary="Infinitely many layers, each weaker than the one before: converges for every weight matrix.",
        build="pprgnn.nn:PPRConv",
        reads=(*AROUND, "eps", "learn_eps", "activation", "weight_init", "grad_terms"),
    ),
    System(
        name="ignn", title="IGNN", year=2020, link="https://arxiv.org/abs/2009.06211", kind="infinite",
        paper="Implicit Graph Neural Networks",
        summary="The equilibrium of one layer; projecting the weights keeps it unique.",
        build="pprgnn.baselines.ignn:IGNNConv",
        reads=(*AROUND, "activation", "weight_init"),
        settings={"model.max_depth": 300},
        own=options(
            acceleration=_acceleration(),
            kappa=option(0.95, "how much a step may keep of a difference", above=0, most=0.999),
            scaling=choice(
                "radius: the plain adjacency matrix, W within kappa over its spectral radius, as published on PPI",
                "normalized", "radius",
            ),
            solver=choice(
                "core: on our fused kernels; direct: as the published code computes, in plain steps, to compare "
                "speed",
                "core", "direct",
            ),
        ),
    ),
    System(
        name="eignn", title="EIGNN", year=2021, link="https://arxiv.org/abs/2202.10720", kind="infinite",
        paper="EIGNN: Efficient Infinite-Depth Graph Neural Networks",
        summary="The equilibrium of a linear layer whose weights contract by construction.",
        build="pprgnn.baselines.ignn:EIGNNConv",
        reads=AROUND,
        own=options(acceleration=_acceleration(), gamma=_gamma()),
    ),
    System(
        name="mgnni", title="MGNNI", year=2022, link="https://arxiv.org/abs/2210.08353", kind="infinite",
        paper="MGNNI: Multiscale Graph Neural Networks with Implicit Layers",
        summary="Equilibria that hop one, two, ... steps at a time, mixed by attention for each node.",
        build="pprgnn.baselines.ignn:MGNNIConv",
        reads=AROUND,
        own=options(
            acceleration=_acceleration(),
            gamma=_gamma(),
            scales=option(2, "hops per step: equilibria for 1, 2, ... up to so many", least=1),
        ),
    ),
    System(
        name="infinite", title="Infinite depth", **PAGERANK,
        summary="Our recursion around a convolution of your choice: attention, perceptrons and more.",
        build="pprgnn.nn:InfiniteConvNet",
        reads=(*STACK, "eps", "learn_eps", "activation", "depth", "max_depth", "grad_terms"),
        own=ANY_CONV,
    ),
    System(
        name="stack", title="Stack", **CONVOLUTION,
        summary="A few convolutions of your choice, one after the other: the finite counterpart of `infinite`.",
        build="pprgnn.nn:ConvStack",
        reads=STACK,
        settings={"model.layers": 2},
        own=ANY_CONV,
    ),
    # ---- The networks that everybody compares with.
    System(
        name="mlp", title="MLP", year=1986, link="https://doi.org/10.1038/323533a0",
        paper="Learning Representations by Back-Propagating Errors",
        summary="Linear layers on the features of each node; the edges change nothing.",
        build="pprgnn.baselines.classic:MLPNet",
        settings={"model.layers": 2},
    ),
    System(
        name="structure-free", title="Structure-free", year=2020, link="https://arxiv.org/abs/1912.09893",
        paper="A Fair Comparison of Graph Neural Networks for Graph Classification",
        summary="A graph as the multiset of its nodes, without edges: a layer, a sum and a perceptron.",
        build="pprgnn.baselines.classic:StructureFreeNet", tasks=("graph",), aliases=("deep-multisets",),
        reads=("hidden", "dropout", "pooling"),
        settings={"model.dropout": 0.0},
        own=options(per_node=option(
            True,
            "a layer on each node before the sum; no: sum the features first, as its authors do for molecules",
        )),
    ),
    System(
        name="gcn", title="GCN", **CONVOLUTION,
        summary="Each layer averages the neighbours' states, with a linear map and ReLU.",
        build="pprgnn.baselines.classic:GCNNet",
        reads=("hidden", "layers", "dropout", "pooling", "norm", "residual"),
        settings={"model.layers": 2, "training.recursion_weight_decay": 0.0},
    ),
    System(
        name="gat", title="GAT", year=2018, link="https://arxiv.org/abs/1710.10903",
        paper="Graph Attention Networks",
        summary="As GCN, but attention decides how much each neighbour counts; hidden is the width of one head.",
        build="pprgnn.baselines.classic:GATNet", edge_weights=False,
        reads=("hidden", "layers", "dropout", "pooling", "norm", "residual"),
        settings={"model.hidden": 8, "model.layers": 2, "model.dropout": 0.6, "training.lr": 0.005},
        own=options(
            heads=option(8, "heads of the hidden layers", least=1),
            output_heads=option(1, "heads of the last layer, which are averaged; on node tasks", least=1),
            attention_dropout=option(0.6, "dropout of the attention", least=0, most=0.95),
            skip=option(
                False,
                "linear skip connections around the hidden layers but the first, as its authors have them on PPI",
            ),
        ),
    ),
    System(
        name="gin", title="GIN", year=2019, link="https://arxiv.org/abs/1810.00826",
        paper="How Powerful are Graph Neural Networks?",
        summary="Sums over neighbours through perceptrons: as strong as the Weisfeiler-Leman test.",
        build="pprgnn.baselines.classic:GINNet",
        settings={"model.layers": 4, "training.weight_decay": 0.0},
        own=options(train_eps=option(False, "learn how much a node counts beside its neighbours")),
    ),
    System(
        name="dgcnn", title="DGCNN", year=2018, link="https://doi.org/10.1609/aaai.v32i1.11782",
        paper="An End-to-End Deep Learning Architecture for Graph Classification",
        summary="A GCN by whose states the nodes are sorted; convolutions then read them like a sequence.",
        build="pprgnn.baselines.classic:DGCNNet", tasks=("graph",), facts=("typical_nodes",),
        reads=("hidden", "layers", "dropout"),
        settings={"model.hidden": 32, "model.layers": 4, "training.lr": 1e-4, "training.weight_decay": 0.0},
        own=options(k=option(
            0, "nodes kept of each graph, 10 or more; 0: three fifths of the graphs have as many", least=0
        )),
    ),
    # ---- Networks that look farther than a GCN does: deeper, or with the help of PageRank.
    System(
        name="gcnii", title="GCNII", year=2020, link="https://arxiv.org/abs/2007.02133",
        paper="Simple and Deep Graph Convolutional Networks",
        summary="A GCN of many layers, each of which also sees the first state and stays close to the identity.",
        build="pprgnn.baselines.deep:GCNIINet",
        reads=("hidden", "layers", "dropout", "pooling", "residual"),
        settings={"model.layers": 64, "model.dropout": 0.6, "training.recursion_weight_decay": 0.01},
        own=options(
            alpha=option(0.1, "how much of the first state is in every layer", least=0, most=1),
            theta=option(0.5, "how far the layers are from the identity (the paper's lambda)", least=0),
            shared_weights=option(True, "one weight matrix for both terms of a layer; no: GCNII*"),
        ),
    ),
    System(
        name="jknet", title="JK-Net", year=2018, link="https://arxiv.org/abs/1806.03536",
        paper="Representation Learning on Graphs with Jumping Knowledge Networks",
        summary="A GCN whose head sees the states of all layers.",
        build="pprgnn.baselines.deep:JKNet",
        settings={"model.layers": 4},
        own=options(mode=choice("how the states of all layers are brought together", "cat", "max", "lstm")),
    ),
    System(
        name="dropedge", title="DropEdge", year=2020, link="https://arxiv.org/abs/1907.10903",
        paper="DropEdge: Towards Deep Graph Convolutional Networks on Node Classification",
        summary="A GCN that sees another part of the edges in every training step.",
        build="pprgnn.baselines.deep:DropEdgeNet",
        settings={"model.layers": 4, "training.recursion_weight_decay": 0.0},
        own=options(
            drop_rate=option(0.5, "which part of the edges a training step leaves out", least=0, most=0.99),
        ),
    ),
    System(
        name="pairnorm", title="PairNorm", year=2020, link="https://arxiv.org/abs/1909.12223",
        paper="PairNorm: Tackling Oversmoothing in GNNs",
        summary="A GCN whose states are kept apart by a normalisation after each layer.",
        build="pprgnn.baselines.deep:PairNormNet", tasks=("node",),
        reads=("hidden", "layers", "dropout"),
        settings={"model.layers": 2, "model.dropout": 0.6},
        own=options(
            scale=option(1.0, "how far states are kept apart", above=0),
            individually=option(True, "scale each node by itself (PN-SI), not all together (PN)"),
        ),
    ),
    System(
        name="gdc", title="GDC", year=2019, link="https://arxiv.org/abs/1911.05485",
        paper="Diffusion Improves Graph Learning",
        summary="A GCN on another graph, whose edges are the largest entries of personalised PageRank.",
        build="pprgnn.baselines.deep:GDCNet", tasks=("node",),
        reads=("hidden", "layers", "dropout"),
        settings={"model.layers": 2, "training.recursion_weight_decay": 0.0},
        own=options(
            alpha=option(0.05, "how likely a walk of PageRank returns to its start", above=0, most=1),
            keep=option(128, "edges of the new graph per node", least=1),
        ),
    ),
    System(
        name="gpr-gnn", title="GPR-GNN", year=2021, link="https://arxiv.org/abs/2006.07988",
        paper="Adaptive Universal Generalized PageRank Graph Neural Network",
        summary="A perceptron, then a sum over hops with learned weights that start as personalised PageRank.",
        build="pprgnn.baselines.appnp:GPRGNNNet",
        settings={"model.layers": 2, "training.recursion_weight_decay": 0.0},
        own=options(
            hops=option(10, "how far messages go", least=0),
            alpha=option(0.1, "of the PageRank that the weights of the hops start from", above=0, most=1),
        ),
    ),
    System(
        name="appnp", title="APPNP", **PREDICT,
        summary="A perceptron on each node, then ten steps of personalised PageRank over its predictions.",
        build="pprgnn.baselines.appnp:APPNPNet",
        settings={"model.layers": 2, "training.weight_decay": 5e-3, "training.recursion_weight_decay": 0.0},
        own=options(
            hops=option(10, "steps of the power iteration", least=0),
            alpha=option(0.1, "how likely a walk of PageRank returns to its start", least=0, most=1),
            drop_entries=option(False, "in training, every step drops entries of the matrix at the rate dropout"),
        ),
    ),
    System(
        name="ppnp", title="PPNP", **PREDICT,
        summary="A perceptron on each node, then exact personalised PageRank over its predictions.",
        build="pprgnn.baselines.appnp:PPNPNet",
        settings={"model.layers": 2, "training.weight_decay": 5e-3, "training.recursion_weight_decay": 0.0},
        own=options(
            alpha=option(0.1, "how likely a walk of PageRank returns to its start", above=0, most=1),
            solve_tol=option(1e-6, "error allowed in a solve, relative to its right-hand side", above=0),
        ),
    ),
    # ---- Networks that repeat one operator with shared weights: a few rounds of it, or until nothing changes.
    System(
        name="structure2vec", title="structure2vec", year=2016, link="https://arxiv.org/abs/1603.05629",
        paper="Discriminative Embeddings of Latent Variable Models for Structured Data",
        summary="A few rounds of mean field: each adds up the neighbours' states, always with the same weights.",
        build="pprgnn.baselines.sse:Structure2VecNet",
        reads=("hidden", "dropout", "pooling"),
        settings={"training.epochs": 200},
        own=options(
            rounds=option(4, "rounds of mean field, with shared weights", least=1),
            aggregate=choice(
                "over the neighbours; sum: as published; mean: where degrees are large", "sum", "mean"
            ),
        ),
    ),
    System(
        name="sse", title="SSE", year=2018, link="https://proceedings.mlr.press/v80/dai18a.html",
        paper="Learning Steady-States of Iterative Algorithms over Graphs",
        summary="A learned operator and its steady state, approached by updates of random nodes while learning.",
        build="pprgnn.baselines.sse:SSENet", whole_gradient=False,  # it goes through one update only
        reads=("hidden", "dropout", "pooling"),
        settings={"model.dropout": 0.8, "training.epochs": 200},
        own=options(
            aggregate=choice(
                "over the neighbours; mean: as its authors' code; sum: as its formula, which seldom converges",
                "mean", "sum",
            ),
            updates=option(10, "updates of embeddings for each step of the weights", least=1),
            share=option(0.1, "part of the nodes in each update", above=0, most=1),
            step=option(0.5, "part of the new embedding in an update", above=0, most=1),
            contraction=option(
                0.9, "T moves embeddings together by this factor at least; 0: as published, it need not",
                least=0, most=0.999,
            ),
            steady_tol=option(1e-4, "change that counts as steady in evaluation, relative to the size", above=0),
            max_sweeps=option(200, "most sweeps in evaluation; reaching it warns", least=1),
        ),
    ),
    System(
        name="gind", title="GIND", year=2022, link="https://arxiv.org/abs/2206.14418",
        paper="Optimization-Induced Graph Implicit Nonlinear Diffusion",
        summary="The equilibrium of a nonlinear diffusion along the edges, the minimum of a convex objective.",
        build="pprgnn.baselines.gind:GINDNet",
        reads=("hidden", "dropout", "input_dropout", "pooling", "self_loops"),
        settings={
            "model.hidden": 128, "model.dropout": 0.8, "model.input_dropout": 0.8,
            "training.epochs": 200, "training.lr": 0.02, "training.recursion_lr": 0.001,
        },
        own=options(
            steady_tol=option(1e-3, "error allowed in the equilibrium, relative to its size", above=0),
            max_steps=option(500, "most steps to the equilibrium; reaching it warns", least=1),
            acceleration=_acceleration(),
        ),
    ),
    # ---- Fitted without gradients: graph kernels with a support vector machine, and what labels alone tell.
    System(
        name="gk", title="GK", year=2009, link="https://proceedings.mlr.press/v5/shervashidze09a.html",
        paper="Efficient Graphlet Kernels for Large Graph Comparison",
        summary="Compares how many triples of nodes have 0, 1, 2 and 3 edges; a support vector machine decides.",
        build="pprgnn.baselines.kernels:GraphletNet", **KERNEL, requires=("sklearn",),
        own=options(connected=option(False, "count connected triples of nodes only")),
    ),
    System(
        name="rw", title="RW", year=2003, link="https://doi.org/10.1007/978-3-540-45167-9_11",
        paper="On Graph Kernels: Hardness Results and Efficient Alternatives",
        summary="Counts the walks that two labelled graphs have in common; a support vector machine decides.",
        build="pprgnn.baselines.kernels:RandomWalkNet", **KERNEL, requires=("sklearn",),
        own=options(
            decay=option(
                (0.001, 0.01, 0.05, 0.1),
                "weight of each step of a walk; of several, cross-validation chooses one that suits the data",
                above=0,
            ),
            steps=option(0, "most steps of a walk; 0: any number", least=0),
            max_hours=option(1.0, "refuse to compare all pairs of graphs if that would take longer", above=0),
        ),
    ),
    System(
        name="wl", title="WL", year=2011, link="https://jmlr.org/papers/v12/shervashidze11a.html",
        paper="Weisfeiler-Lehman Graph Kernels",
        summary="Compares which neighbourhoods nodes have, some hops deep; a support vector machine decides.",
        build="pprgnn.baselines.kernels:WeisfeilerLehmanNet", **KERNEL, requires=("grakel", "sklearn"),
        own=options(iterations=option(
            (1, 2, 3, 4, 5), "rounds of colour refinement; of several, cross-validation chooses", least=1, most=50
        )),
    ),
    System(
        name="label-propagation", title="Label propagation", year=2003, aliases=("lp",),
        link="https://papers.nips.cc/paper/2506-learning-with-local-and-global-consistency",
        paper="Learning with Local and Global Consistency",
        summary="The labels of training nodes spread along the edges; features play no part.",
        build="pprgnn.baselines.label_propagation:LabelPropagationNet", kind="labels",
        tasks=("node",), new_graphs=False, whole_gradient=False, reads=(),
        own=options(
            damping=option(
                (0.5, 0.8, 0.9, 0.95, 0.99),
                "what is left of a label after a step; of several, validation chooses", above=0, most=0.9999,
            ),
            prior_weight=option(
                (0.01, 0.1, 1.0, 10.0), "how much the frequency of a class counts; of several, validation chooses",
                above=0,
            ),
            spread=choice("normalisation of the adjacency matrix; both: validation chooses", "both", "sym", "row"),
            steps=option(30, "how far labels go", least=1),
        ),
    ),
)
# fmt: on
_BY_NAME = {name: system for system in SYSTEMS for name in (system.name, *system.aliases)}


def find_system(name: str) -> System:
    """The system of this name, or of this other name, in any case of letters."""
    system = _BY_NAME.get(name.lower())
    if system is None:
        close = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
        hint = f"did you mean {close[0]!r}?" if close else "`pprgnn models` lists them."
        raise TrainingError(f"There is no model {name!r}; {hint}")
    return system


def find_systems(text: str) -> list[System]:
    """The systems of a list such as ``"pprgnn,gcn"``; one that is unknown or named twice is refused."""
    found = [find_system(name.strip()) for name in text.split(",") if name.strip()]
    twice = next((system for system in found if found.count(system) > 1), None)
    if twice or not found:
        problem = f"names {twice.name} twice" if twice else f"is {text!r}"
        raise TrainingError(
            f"--model must name a system, or several different ones as in gcn,appnp, but {problem}."
        )
    return found
