from hypothesis import given
from hypothesis import strategies as st

from turngym.tools.python.stock import SPARE, TRIES, Stock

EVENTS = st.sampled_from(["want"] * 4 + ["ready"] * 4 + ["fail", "die", "lose", "lose unproven"])


class Shop:
    """A stock, and beside it a plain count of what came of each boundary and what callers got."""

    def __init__(self) -> None:
        self.stock = Stock()
        self.wanted = self.served = self.told = self.coming = 0

    def restock(self) -> None:
        while self.stock.missing:
            self.stock.begun += 1
            self.coming += 1

    def want(self) -> None:
        self.stock.asked += 1
        self.wanted += 1

    def ready(self) -> None:
        if self.coming:
            self.coming -= 1
            self.stock.hand()
            self.served += 1

    def drop(self, lost: int, *, known: bool, tell: int) -> None:
        self.coming -= lost
        for _ in range(lost):
            self.stock.lose()
        if self.stock.fault(known=known):
            for _ in range(min(tell, self.stock.waiting)):
                self.stock.tell()
                self.told += 1

    def happen(self, event: str) -> None:
        lost = min(1, self.coming)
        match event:
            case "want":
                self.want()
            case "ready":
                self.ready()
            case "fail":
                self.drop(lost, known=True, tell=lost)
            case "die":
                self.drop(lost, known=False, tell=lost)
            case _:
                self.drop(self.coming, known=event != "lose", tell=self.wanted)
        self.restock()


@given(st.lists(EVENTS, max_size=60))
def test_whatever_dies_nobody_waits_for_a_boundary_that_is_not_on_its_way(events: list[str]):
    shop = Shop()
    stock = shop.stock
    for event in events:
        shop.happen(event)
        assert stock.handed == shop.served + shop.told <= stock.begun
        assert stock.begun - stock.handed == shop.coming >= stock.waiting
        assert stock.waiting == max(0, shop.wanted - shop.served - shop.told)
        assert stock.missing == 0
    while shop.coming:
        shop.happen("ready")
    assert stock.waiting == 0
    assert stock.faults >= TRIES or stock.handed == stock.asked + (SPARE if shop.wanted else 0)


def test_nothing_is_made_of_a_kind_that_nobody_asked_for():
    assert Stock().missing == 0
    assert Stock(asked=1).missing == 1 + SPARE


def test_what_is_lost_without_a_reason_is_begun_anew_and_told_only_in_the_end():
    stock = Stock(asked=1)
    told = []
    for _ in range(TRIES):
        stock.begun += 1
        stock.lose()
        told.append(stock.fault(known=False))
    assert told == [False] * (TRIES - 1) + [True]
    stock.tell()
    assert (stock.waiting, stock.missing) == (0, 0)  # no more is tried until somebody asks again
    stock.asked += 1
    assert stock.missing == 1
    stock.begun += 1
    stock.hand()
    assert stock.missing == SPARE


def test_a_known_reason_is_told_at_once_but_to_nobody_who_does_not_wait():
    stock = Stock(asked=1, begun=3)
    stock.lose()
    assert stock.fault(known=True)
    stock.tell()
    stock.lose()
    assert not stock.fault(known=True)
    assert stock.handed == stock.asked == 1
