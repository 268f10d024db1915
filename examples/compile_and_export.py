"""Into production: `torch.compile` without a graph break, `torch.export` and ONNX.

Compiled and exported models choose their depth by themselves, for every graph anew. ONNX knows no such thing:
`freeze_depth` fixes the depth that was found last. Expect all differences to the model itself, relative to its
largest number, to be below 1e-4: they come from rounding, and from a depth that may differ by a few hops.
"""

import copy
import importlib.util
import io
import logging

import torch

import pprgnn
from pprgnn.nn import PPRGNN, freeze_depth

torch.manual_seed(0)
graph, larger = (pprgnn.data.load("sbm", nodes=nodes)[0] for nodes in (200, 400))
model = PPRGNN(4, 16, num_layers=1, out_channels=4, eps=0.5).eval()


def compare(name, function, data):
    """Print the largest difference to what the model says about a graph."""
    with torch.no_grad():
        answer = model(data.x, data.edge_index)
        difference = function(data.x, data.edge_index) - answer
    print(f"{name:<40} differs by {difference.abs().max() / answer.abs().max():.1e}")


def gradient(function):
    """Of the loss with respect to all parameters."""
    loss = torch.nn.functional.cross_entropy(function(graph.x, graph.edge_index), graph.y)
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


# The default backend takes the same graph and then compiles C++, 20 seconds here: too long for an example.
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
compare("torch.compile, output", compiled, graph)
difference = (gradient(compiled) - gradient(model)).abs().max()
print(f"{'torch.compile, gradient':<40} differs by {difference:.1e}")

sizes = ({0: torch.export.Dim("nodes", min=2)}, {1: torch.export.Dim("edges", min=2)})  # for graphs of any size
exported = torch.export.export(model, (graph.x, graph.edge_index), dynamic_shapes=sizes).module()
compare("torch.export", exported, graph)
compare("torch.export, larger graph", exported, larger)

frozen = copy.deepcopy(model)
frozen(larger.x, larger.edge_index)  # finds the depth
freeze_depth(frozen)
compare(f"freeze_depth at {frozen.convs[0].depth}", frozen, larger)

if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
    print("ONNX is left out: pip install onnx onnxscript onnxruntime")
else:
    import onnxruntime

    logging.disable(logging.WARNING)  # the exporter tells about every step

    program = torch.onnx.export(
        frozen, (graph.x, graph.edge_index), dynamo=True, dynamic_shapes=sizes, verbose=False
    )
    file = io.BytesIO()
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue())

    def run(*inputs):
        """What ONNX Runtime answers."""
        names = [each.name for each in session.get_inputs()]
        arrays = [each.numpy() for each in inputs]
        return torch.from_numpy(session.run(None, dict(zip(names, arrays, strict=True)))[0])

    compare("ONNX Runtime", run, graph)
    compare("ONNX Runtime, larger graph", run, larger)
