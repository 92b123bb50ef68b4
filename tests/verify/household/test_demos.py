"""Demonstrations in the old text, for which a game is found; edited lines are listed."""

import re

import pytest

from turngym.envs.household import intro, step
from turngym.tests.verify.household import demos
from turngym.tests.verify.household.episodes import Episode, Moment


@pytest.fixture
def demo(catalogue):
    """The walkthrough in the old text, as authors of prompts write it down."""
    game = catalogue.read(0)
    world = game.world("old")
    state, moments = world.start, [Moment("think: where is it?", "OK.")]
    for action in game.walk("old"):
        state, text = step(world, state, action)
        moments.append(Moment(action, re.sub(r"^You arrive at loc \d+\. ", "", text)))
    return Episode(
        "here",
        "made/up_0",
        "",
        intro(world).partition("\n\n")[2].replace("\n\n", "\n"),
        None,
        moments,
    )


def changed(demo, turn, text):
    moments = [Moment(m.action, text) if i == turn else m for i, m in enumerate(demo.moments)]
    return Episode(demo.where, demo.id, "", demo.opening, None, moments)


def test_a_line_that_is_not_the_games_falls_short_unless_it_is_listed(catalogue, demo, monkeypatch):
    edited = changed(demo, 1, "On the microwave 1, you see a pineapple 1.")
    row = demos.demo_row(catalogue, [edited])
    assert (row.held, row.of) == (0, 1) and "the game says 'The microwave 1 is closed.'" in row.note
    monkeypatch.setattr(demos, "EDITED", {("up_0", "go to microwave 1"): "fruit"})
    row = demos.demo_row(catalogue, [edited])
    assert row.good and "not the game's in made/up_0: go to microwave 1: fruit" in row.note
    row = demos.demo_row(catalogue, [demo])
    assert not row.good and "is listed and is the game's" in row.note


def test_other_tasks_ends_and_rooms_fall_short(catalogue, demo):
    other = Episode("", "task", "", demo.opening.replace("hot", "cool"), None, demo.moments)
    unended = Episode("", "end", "", demo.opening, None, demo.moments[:-1])
    away = Episode("", "room", "", "You see a bed 1.", None, demo.moments)
    row = demos.demo_row(catalogue, [other, unended, away])
    assert (
        row.held == 0
        and "task 'the task'" in row.note
        and "end 'the end'" in row.note
        and "room: its" in row.note
    )
