"""Runs and measurements that nobody trained or measured: as a folder, in a moment."""

import json
import math

import torch

from pprgnn.data.split import Split
from pprgnn.report.measured.results import (
    Baseline,
    ClassScores,
    Convergence,
    Cost,
    Decay,
    FeatureShares,
    Measurements,
    Missing,
    Reach,
    ReachLine,
    Smoothing,
    SmoothingLine,
    Truncation,
    fingerprint,
    keep_measurements,
)
from pprgnn.training.config import Config
from pprgnn.training.run import Run

HOPS, DEPTHS = list(range(31)), list(range(26))
SPLIT = {"dataset": "Cora", "protocol": "honest", "unit": "node", "size": 100, "seed": 0, "index": 0, "count": 1}
NO_LAYER = Missing("GCN has no layer of infinite depth, so there is no error of one.")
STATES = ["Case_Based", "Genetic", "Neural", "Probabilistic", "Reinforcement", "Rules", "Theory"]


def product(eps, norm=1.0):
    return [math.prod(norm / (1 + n * eps) for n in range(1, hop + 1)) for hop in HOPS]


def convergence(layer="convs.0", chosen=14):
    errors = [1.4 * 0.4**depth + 2e-8 for depth in DEPTHS]
    proved = [None if depth < 3 else 30 * 0.42**depth for depth in DEPTHS]
    return Convergence(
        layer, DEPTHS, errors, proved, [0.3 * each for each in errors], chosen, "MEASURED", 1e-5, 1e-7
    )


def decay(layer="convs.0", eps=(0.25, 0.25, 0.25)):
    appnp = {"0.1": [0.9**hop for hop in HOPS], "0.2": [0.8**hop for hop in HOPS]}
    return Decay(layer, eps, HOPS, tuple(product(each) for each in eps), product(eps[0], 1.2), appnp)


def reach():
    hops = list(range(9))
    lines = [
        ReachLine("PPRGNN", [0.3, 0.25, 0.18, 0.1, 0.07, 0.04, 0.03, 0.02, 0.01], True),
        ReachLine("GCN-2", [0.35, 0.4, 0.25, 0, 0, 0, 0, 0, 0], False),
        ReachLine("APPNP", [0.2, 0.28, 0.22, 0.12, 0.08, 0.05, 0.03, 0.01, 0.01], False),
    ]
    return Reach(hops, lines, 100, [1.0, 4.2, 36.0, 120.0, 400.0, 700.0, 500.0, 200.0, 90.0])


def features(count=30):
    names = ["age", "city", *(f"word {i}" for i in range(count - 2))][:20]
    return FeatureShares(names, [0.5 * 0.5**i for i in range(len(names))], count, "node", 32, 0.0031)


def smoothing():
    depths = [0, 1, 2, 4, 8, 16, 32, 64]
    ours = SmoothingLine("PPRGNN", [0.4, 0.2, 0.1, 0.06, 0.05, 0.05, 0.05, 0.05], [0.8] * 8, True)
    gcn = SmoothingLine("GCN", [0.4 * 0.8**d for d in depths], [0.8 * 0.9**d for d in depths], False)
    return Smoothing(depths, [ours, gcn])


def truncation(layer="convs.0", used=5):
    terms = list(range(1, 13))
    bound = [None, None, *(3 * 0.6**n for n in terms[2:])]
    return Truncation(layer, terms, [0.5 * 0.4**n for n in terms], [0.6 * 0.4**n for n in terms], bound, used)


def cost():
    depths = [1, 2, 4, 8, 16, 32]
    unrolled = [*(0.002 + 0.0016 * d for d in depths[:-1]), None]
    held = [*(d * 2_000_000 for d in depths[:-1]), None]
    return Cost(depths, [0.002 + 0.0005 * d for d in depths], [4_000_000] * 6, unrolled, held, 2, 5)


def class_scores(names=STATES):
    size = len(names)
    confusion = [[40 if i == j else (i * j) % 5 for j in range(size)] for i in range(size)]
    f1 = [0.4 + 0.55 * (i * 5 % 17) / 17 for i in range(size)]
    return ClassScores("test", list(names), f1, f1, f1, [sum(row) for row in confusion], confusion)


BASELINES = [
    Baseline("majority", 0.319, None, "measured here", True),
    Baseline("label propagation", 0.712, None, "measured here", True),
    Baseline("GCN in its paper", 0.815, 0.005, "Kipf and Welling 2017, the same split", False),
]


def measurements(**changes):
    found = {
        "fingerprint": "f" * 32,
        "seconds": 12.3,
        "commit": "0123456789abcdef",
        "date": "2026-11-16T20:00:00+0000",
        "machine": "a processor, 2 threads",
        "convergence": [convergence()],
        "decay": [decay()],
        "reach": reach(),
        "smoothing": smoothing(),
        "truncation": [truncation()],
        "cost": cost(),
        "classes": class_scores(),
        "features": features(),
        "baselines": BASELINES,
    }
    return Measurements(**found | changes)


def finite(**changes):
    """Of a system without a layer of infinite depth."""
    parts = ("convergence", "decay", "truncation", "cost")
    return measurements(**dict.fromkeys(parts, NO_LAYER) | changes)


def bare(**changes):
    """Nothing was measured: a page that is written in a moment."""
    parts = ("convergence", "decay", "reach", "smoothing", "truncation", "cost", "classes", "features")
    return measurements(**dict.fromkeys(parts, Missing("There was no time for it.")) | {"baselines": []} | changes)


def records(epochs=40, layers=1, val=True):
    return [
        {
            "epoch": epoch,
            "loss": 2 * 0.95**epoch,
            "lr": 0.01,
            "grad_norm": 1.0,
            "train": {"accuracy": 1 - 0.9**epoch},
            "val": {"loss": 0.6 + 1.4 * 0.9**epoch, "accuracy": 0.8 - 0.7 * 0.9**epoch} if val else None,
            "best": 0.8,
            "best_epoch": epoch,
            "depth": [10 + epoch % 3 + layer for layer in range(layers)],
            "weight_norm": [1 + 0.005 * epoch + 0.1 * layer for layer in range(layers)],
            "eps": [0.25] * layers,
            "seconds": 0.1,
        }
        for epoch in range(1, epochs + 1)
    ]


def layer(name="convs.0", depth=14):
    known = {"truncation_bound": 5e-6, "error_bound": 8e-6, "rounding_error": 2e-7}
    known |= {"measured_error": 4e-6, "estimated_error": None}
    return {"layer": name, "depth": depth, "status": "MEASURED", "weight_norm": 1.2, "eps": 0.25} | known


def summary(score=0.832, **changes):
    scores = {"loss": 0.7, "accuracy": score, "macro-F1": score - 0.01}
    found = {
        "finished": True,
        "data": "Cora",
        "note": "",
        "protocol": "honest",
        "split": "The published split.",
        "fold": 0,
        "seed": 0,
        "metric": "accuracy",
        "scores": {
            "train": scores | {"accuracy": 0.99},
            "val": scores | {"accuracy": score - 0.02},
            "test": scores,
        },
        "test_chose_the_epoch": False,
        "epochs": 40,
        "best_epoch": 30,
        "best": 0.8,
        "layers": [layer()],
        "parameters": 96327,
        "processes": 1,
        "seconds": 20.5,
        "warnings": [],
    }
    return found | changes


def make_run(folder, *, found=None, told=None, epochs=None, system="pprgnn", changes=(), split=None):
    """A finished run: nothing in it was trained."""
    config = Config.for_system(system).with_settings(["name=Cora", "protocol=honest", *changes])
    parts = {"train": [0, 1, 2], "val": [3, 4], "test": [5, 6, 7]} | (split or {})
    whole = SPLIT | {"fingerprint": "f7d412b9e9cba34c", "description": "The published split."} | parts
    whole |= {part: torch.tensor(whole[part], dtype=torch.int64) for part in ("train", "val", "test")}
    folder.mkdir(parents=True)
    Split(**whole).save(folder / "split.json")
    (folder / "config.toml").write_text(config.to_toml())
    facts = {"python": "3.11", "commit": "0123", "command": f"pprgnn train cora -o {folder.name}", "versions": {}}
    (folder / "environment.json").write_text(json.dumps(facts))
    run = Run.open(folder)
    for record in records() if epochs is None else epochs:
        run.append(record)
    run.finish(told or summary())
    run.model_path.write_bytes(folder.name.encode())
    values = vars(found or measurements()) | {"fingerprint": fingerprint(run.model_path)}
    keep_measurements(run, Measurements(**values))
    return folder


def make_study(folder, scores=(0.89, 0.68, 1.0), **made):
    """A study over as many folds as there are scores."""
    names = [f"fold-{fold}-seed-0" for fold in range(len(scores))]
    for fold, (name, score) in enumerate(zip(names, scores, strict=True)):
        make_run(folder / name, told=summary(score, fold=fold), **made)
    runs = [
        {"run": name} | {key: json.loads((folder / name / "summary.json").read_text())[key] for key in KEPT}
        for name in names
    ]
    mean = {part: {"accuracy": sum(scores) / len(scores), "loss": 0.7} for part in ("train", "val", "test")}
    std = {part: {"accuracy": 0.13, "loss": 0.0} for part in ("train", "val", "test")}
    told = {"finished": True, "data": "Cora", "note": "", "protocol": "honest", "metric": "accuracy"}
    (folder / "summary.json").write_text(json.dumps(told | {"mean": mean, "std": std, "runs": runs}))
    (folder / "config.toml").write_bytes((folder / names[0] / "config.toml").read_bytes())
    facts = {"folds": list(range(len(scores))), "seeds": [0], "workers": 1, "ensemble": False}
    (folder / "study.json").write_text(json.dumps(facts | {"command": "pprgnn train cora --folds all"}))
    return folder


KEPT = ("fold", "seed", "scores", "best_epoch", "epochs", "seconds", "test_chose_the_epoch")
