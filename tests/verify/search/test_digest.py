"""The number that stands for all that is found."""

from turngym.tests.verify.search.digest import digest
from turngym.tools.search.retriever import Passage


class Fixed:
    """Finds what it is told."""

    name = "fixed"

    def __init__(self, *found):
        self.found = found

    def search(self, query, k):
        assert k == 20
        return [Passage(id, "", "", score) for id, score in self.found]

    def close(self):
        pass


def test_ids_order_bits_and_queries_count():
    one = digest(Fixed(("a", 0.1), ("b", 0.2)), ["q"])
    assert one == digest(Fixed(("a", 0.1), ("b", 0.2)), ["another"]) and len(one) == 64
    others = [
        digest(Fixed(("b", 0.2), ("a", 0.1)), ["q"]),
        digest(Fixed(("a", 0.1), ("c", 0.2)), ["q"]),
        digest(Fixed(("a", 0.1 + 2**-56), ("b", 0.2)), ["q"]),
        digest(Fixed(("a", 0.1), ("b", 0.2)), ["q", "q"]),
    ]
    assert len({one, *others}) == 5


def test_where_an_answer_ends_counts():
    class Turns(Fixed):
        def search(self, query, k):
            return [Passage("x", "", "", 1.0)] * int(query)

    assert digest(Turns(), ["1", "2"]) != digest(Turns(), ["2", "1"])
