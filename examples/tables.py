"""From two tables to predictions for new people, in the manner of scikit-learn.

One table says who knows whom, the other how old people are and, for half of them, in which club. People mostly
know people of their own club, and age says a little about it. Expect about 90 % in a town that the model has never
seen and where no club is known; the best guess by age alone is right in about 69 %.
"""

import random

import pyarrow as pa

import pprgnn
from pprgnn.data import from_tables

random.seed(0)


def town(prefix, count, known):
    """A table of ties, a table of people, and the clubs of all of them."""
    clubs = [random.choice(["chess", "tennis"]) for _ in range(count)]
    names = [f"{prefix}{i}" for i in range(count)]
    ages = [random.gauss(55 if club == "chess" else 35, 20) for club in clubs]
    pairs = [(a, b) for a in range(count) for b in range(a)]
    pairs = [(a, b) for a, b in pairs if random.random() < (0.02 if clubs[a] == clubs[b] else 0.005)]
    edges = pa.table({"source": [names[a] for a, _ in pairs], "target": [names[b] for _, b in pairs]})
    labels = [club if random.random() < known else None for club in clubs]  # the others are to be predicted
    return edges, pa.table({"id": names, "age": ages, "club": labels}), clubs


edges, nodes, _ = town("a", 600, known=0.5)
graph = from_tables(edges, nodes, label="club")
model = pprgnn.NodeClassifier(hidden=32, epochs=100).fit(graph)
print(f"test accuracy in the town it has seen: {model.score():.1%}")

edges, nodes, clubs = town("b", 600, known=0.0)
other_town = from_tables(edges, nodes, schema=graph.facts.schema)  # treats the columns as before
by_age = ["chess" if age > 45 else "tennis" for age in nodes["age"].to_pylist()]
by_model = [model.classes_[i] for i in model.predict(other_town)]
for what, predicted in {"by age alone": by_age, "by the model": by_model}.items():
    right = sum(one == other for one, other in zip(predicted, clubs, strict=True))
    print(f"accuracy in a town it has never seen, {what}: {right / len(clubs):.1%}")
