"""Walkthroughs that win, and those that do not."""

from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.walkthroughs import walk_rows


def test_lost_refused_and_early_walkthroughs_fall_short(row, write):
    walk = row["walkthrough"]
    changed = {
        "short": walk[:-1],
        "none": [],
        "refused": ["dance", *walk],
        "early": [*walk, "look"],
    }
    games = Catalogue(
        [write("g.jsonl", [{**row, "id": id, "walkthrough": walk} for id, walk in changed.items()])]
    )
    won, admissible = walk_rows(games)
    assert (won.held, won.of) == (1, 4) and (admissible.held, admissible.of) == (18, 19)
    assert won.note == (
        "short is not won by its walkthrough, none is not won by its walkthrough, early is won at command 6 of 7; "
        "unsolvable by their files: none"
    )
    assert admissible.note == "refused 'dance'"


def test_a_goal_that_is_not_what_the_name_says_falls_short(row, write):
    other = {**row, "id": row["id"].replace("SideTable", "Shelf"), "solvable": False}
    won, _, alike = walk_rows(Catalogue([write("g.jsonl", [other])]))
    assert (alike.held, alike.of) == (
        5,
        6,
    ) and f"unsolvable by their files: {other['id']}" in won.note
