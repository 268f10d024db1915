"""Cora, CiteSeer, PubMed: equal to PyG's own class, the published counts, and only known pickles are opened."""

import os
import pickle
import shutil
import warnings

import pytest
import torch
from torch_geometric.datasets import Planetoid

from pprgnn.data.readers import planetoid
from pprgnn.data.sparse_features import to_dense
from tests.data.cards import facts_of, make_card, refused

# Nodes, undirected edges, features, classes; nodes to train.
COUNTS = {
    "Cora": ((1, 2_708, 5_278, 1_433, 7), 140),
    "CiteSeer": ((1, 3_327, 4_552, 3_703, 6), 120),
    "PubMed": ((1, 19_717, 44_324, 500, 3), 60),
}


def read(name, root):
    return planetoid(make_card(name, "planetoid"), root)


@pytest.fixture
def cora(data_root, tmp_path):
    """A copy that can be changed."""
    shutil.copytree(data_root / "Planetoid" / "cora", tmp_path / "Planetoid" / "cora")
    folder = tmp_path / "Planetoid" / "cora" / "raw"
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("name", COUNTS)
def test_counts_and_pyg(name, data_root, tmp_path):
    before = list(warnings.filters)
    dataset = read(name, data_root)
    assert warnings.filters == before
    counts, training = COUNTS[name]
    assert facts_of(dataset) == counts
    data = dataset[0]
    assert [int(data[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")] == [training, 500, 1_000]
    (tmp_path / name).mkdir()
    (tmp_path / name / "raw").symlink_to(data_root / "Planetoid" / name.lower() / "raw")
    with warnings.catch_warnings():
        expected = Planetoid(str(tmp_path), name)[0]
    assert set(data.keys()) == {*expected.keys(), "num_nodes"}
    for key in expected.keys():  # noqa: SIM118
        assert torch.equal(to_dense(data[key]), expected[key]), key


# Papers of each class, as Sen et al. (2008) count them; 15 of CiteSeer, without edges, have none.
SIZES = {
    "Cora": {"Neural Networks": 818, "Probabilistic Methods": 426, "Genetic Algorithms": 418, "Theory": 351}
    | {"Case Based": 298, "Reinforcement Learning": 217, "Rule Learning": 180},
    "CiteSeer": {"DB": 701, "IR": 668, "Agents": 596, "ML": 590, "HCI": 508, "AI": 249 + 15},
}


@pytest.mark.parametrize("name", SIZES)
def test_names_of_classes_have_their_sizes(name, data_root):
    dataset = read(name, data_root)
    counts = dataset[0].y.bincount().tolist()
    assert dict(zip(dataset.facts.class_names, counts, strict=True)) == SIZES[name]


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["x", "tx", "allx", "y", "ty", "ally", "graph"])
def test_a_pickle_with_code_is_not_opened(cora, kind):
    path, sprung = cora / "Planetoid" / "cora" / "raw" / f"ind.cora.{kind}", cora / "sprung"
    path.write_bytes(pickle.dumps(Trap(sprung)))
    with refused(path, "pickle", "run code"):
        read("Cora", cora)
    assert not sprung.exists()
    with path.open("rb") as file:
        pickle.load(file)  # the trap does work
    assert sprung.exists()


@pytest.mark.parametrize("kind", ["graph", "test.index"])
def test_changed_file(cora, kind):
    path = cora / "Planetoid" / "cora" / "raw" / f"ind.cora.{kind}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with refused(path, "SHA-256"):
        read("Cora", cora)


def test_missing_file(cora):
    path = cora / "Planetoid" / "cora" / "raw" / "ind.cora.ty"
    path.unlink()
    with refused(path, "missing"):
        read("Cora", cora)


def test_unknown_set(data_root, cora):
    """Files of which no SHA-256 is known are not opened, whatever they are."""
    folder = cora / "Planetoid" / "other" / "raw"
    shutil.copytree(cora / "Planetoid" / "cora" / "raw", folder)
    for path in list(folder.iterdir()):
        path.rename(folder / path.name.replace("cora", "other"))
    with refused(folder, "not opened"):
        read("other", cora)
