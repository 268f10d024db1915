"""From two tables to predictions for new people: `python examples/tables.py` needs no download."""

import random

import pyarrow as pa

import pprgnn
from pprgnn.data import from_tables

random.seed(0)


def town(prefix, count, known):
    """People who mostly know people of their own club; age says a little about the club, too."""
    clubs = [random.choice(["chess", "tennis"]) for _ in range(count)]
    names = [f"{prefix}{i}" for i in range(count)]
    ages = [random.gauss(50 if club == "chess" else 40, 15) for club in clubs]
    pairs = [(a, b) for a in range(count) for b in range(a)]
    pairs = [(a, b) for a, b in pairs if random.random() < (0.04 if clubs[a] == clubs[b] else 0.01)]
    edges = pa.table({"source": [names[a] for a, _ in pairs], "target": [names[b] for _, b in pairs]})
    labels = [club if random.random() < known else None for club in clubs]  # the others are to be predicted
    return edges, pa.table({"id": names, "age": ages, "club": labels}), clubs


edges, nodes, _ = town("a", 300, known=0.5)
graph = from_tables(edges, nodes, label="club")
model = pprgnn.NodeClassifier(hidden=32, epochs=100).fit(graph)
print(f"test accuracy in the town it has seen: {model.score():.1%}")

edges, nodes, clubs = town("b", 200, known=0.0)
other_town = from_tables(edges, nodes, schema=graph.facts.schema)  # treats the columns as before
predicted = [model.classes_[i] for i in model.predict(other_town)]
right = sum(one == other for one, other in zip(predicted, clubs, strict=True))
print(f"accuracy in a town it has never seen: {right / len(clubs):.1%}")
