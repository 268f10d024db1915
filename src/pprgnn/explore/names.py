"""Names that are searched: the exact one first, then those that start with a text, then those that contain it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

END = "\n"


class Names:
    """A list of names; all of them in one text, which is searched at the speed of memory."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _folded(self) -> tuple[str, list[int]]:
        """The text, and where each name begins in it."""
        plain = [" ".join(name.casefold().split()) for name in self._names]
        starts = list(accumulate((len(name) + 1 for name in plain), initial=1))
        return END + END.join(plain) + END, starts

    def search(self, wanted: str, limit: int) -> list[int]:
        """At most so many numbers of names."""
        wanted = " ".join(wanted.casefold().split())
        found: dict[int, None] = {}
        for pattern in (END + wanted + END, END + wanted, wanted):
            for number in self._matches(pattern):
                if len(found) == limit:
                    return list(found)
                found[number] = None
        return list(found)

    def _matches(self, pattern: str) -> Iterator[int]:
        (text, starts), ahead = self._folded, int(pattern.startswith(END))
        place = text.find(pattern, 1 - ahead)
        while place >= 0:
            number = bisect_right(starts, place + ahead) - 1
            if number == len(self._names):  # behind the last name, where only the empty text is found
                return
            yield number
            place = text.find(pattern, starts[number + 1] - ahead)
