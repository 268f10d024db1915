"""The benchmark of sparse features runs, and tells file and epochs of either form."""

from benchmarks import sparse_features


def test_a_small_shape(monkeypatch, capsys):
    given = ["benchmark", "--shape", "60", "80", "--share", "0.05", "--epochs", "1"]
    monkeypatch.setattr(sparse_features.sys, "argv", given)
    sparse_features.main()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()]
    assert rows[2:] == ["file, MB", "gcn, ms/epoch", "mlp, ms/epoch", "pprgnn, ms/epoch"]
