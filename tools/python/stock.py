"""The books of the stock: how many boundaries of a kind were asked for, are on their way, and were handed out.

Keepers and warm interpreters may die at any moment, also before they hand anything out. Whatever dies, the books keep
one law: once `missing` boundaries are begun, no fewer are on their way than there are callers who wait.
"""

from dataclasses import dataclass

SPARE = 2
"""Boundaries of a kind that are ready beyond those asked for."""
TRIES = 5
"""Boundaries in a row that may be lost without a reason before those who wait are told."""


@dataclass
class Stock:
    """The boundaries of one kind, counted since the start; a failure that a caller is told counts as handed out.

    asked: callers so far, of whom `asked - handed` wait, or where that is negative, so many boundaries lie ready
    begun: boundaries begun and not lost, of which `begun - handed` are on their way
    handed: boundaries and failures handed out, in order, one for each caller
    faults: boundaries lost in a row, `TRIES` at once where the reason is known and would hold for the next one too
    """

    asked: int = 0
    begun: int = 0
    handed: int = 0
    faults: int = 0

    @property
    def waiting(self) -> int:
        """Callers who have nothing yet."""
        return max(0, self.asked - self.handed)

    @property
    def missing(self) -> int:
        """Boundaries to begin now; none beyond those asked for where they keep failing, or nobody ever asked."""
        spare = SPARE if self.asked and self.faults < TRIES else 0
        return max(0, self.asked + spare - self.begun)

    def hand(self) -> None:
        """Count a boundary that is handed out."""
        self.handed += 1
        self.faults = 0

    def lose(self) -> None:
        """Count back a boundary that will never be handed out."""
        self.begun -= 1

    def fault(self, *, known: bool) -> bool:
        """Note why boundaries were lost: for a `known` reason or not; whether it is to be told to who waits."""
        self.faults = TRIES if known else self.faults + 1
        return self.waiting > 0 and self.faults >= TRIES

    def tell(self) -> None:
        """Count a failure that is handed out in a boundary's stead."""
        self.begun += 1
        self.handed += 1
