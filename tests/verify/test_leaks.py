"""Every place of a leak is looked at."""

import pytest

from turngym.tests.verify import leaks


@pytest.mark.parametrize("place", leaks.LEAKS)
def test_a_leak_is_found_where_it_is(place):
    assert leaks.found(leaks.leaking(*leaks.LEAKS[place])).startswith(
        "seed 0: the gold is seen in "
    )


def test_what_leaks_nothing_is_not_blamed(monkeypatch):
    assert leaks.found(leaks.Quiz) == ""
    monkeypatch.setattr(leaks, "LEAKS", {"nowhere": ("gold", lambda before, env: before(env))})
    row = leaks.leak_row()
    assert (row.held, row.of, row.note) == (1, 2, "nowhere")
