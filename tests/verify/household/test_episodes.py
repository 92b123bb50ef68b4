"""Recorded episodes, whole and with every kind of difference."""

import pytest

from turngym.tests.verify.household import episodes


def rows_of(catalogue, *recorded):
    found = [episodes.episode_of_row(row, "here") for row in recorded]
    return list(episodes.replay_rows(catalogue, found, "recorded"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observation", "You arrive at sidetable 2."),
        ("admissible", ["look"]),
        ("reward", 0),
        ("done", False),
        ("won", False),
    ],
)
def test_each_difference_counts_at_its_step(catalogue, recorded, name, value):
    recorded["steps"][-1][name] = value
    whole, steps = rows_of(catalogue, recorded)
    assert (whole.held, steps.held, steps.of) == (0, 6, 7)
    assert f"step 7 'move apple 1 to sidetable 1': {name}" in whole.note


def test_a_difference_in_the_opening_counts(catalogue, recorded):
    whole, steps = rows_of(
        catalogue, {**recorded, "init_obs": "x"}, {**recorded, "init_admissible": []}
    )
    assert (whole.held, steps.held) == (0, 14)
    assert (
        "should be 'x' and is '-= Welcome" in whole.note
        and "admissible commands should be []" in whole.note
    )


def test_an_action_after_the_end_and_an_unknown_game_count(catalogue, recorded):
    recorded["steps"].append({**recorded["steps"][0], "observation": "Nothing happens."})
    unknown = {**recorded, "game_id": "other"}
    whole, steps = rows_of(catalogue, recorded, unknown)
    assert (whole.held, steps.held, steps.of) == (0, 7, 16)
    assert (
        "what comes after the end" in whole.note and "'other' is in none of the files" in whole.note
    )


def test_blank_commands_are_compared_too(catalogue, recorded, monkeypatch):
    blanks = [{**recorded["steps"][0], "action": text} for text in episodes.BLANK]
    assert [
        row.good for row in rows_of(catalogue, {**recorded, "steps": [*blanks, *recorded["steps"]]})
    ] == [True] * 2
    assert episodes.blank_row(catalogue).good
    wrong = [{**blanks[0], "observation": "Error: this reply has no command."}, *recorded["steps"]]
    assert not rows_of(catalogue, {**recorded, "steps": wrong})[0].good
    monkeypatch.setattr(
        "turngym.envs.household.env.step", lambda world, state, command: (state, "What?")
    )
    assert episodes.blank_row(catalogue).held == 0
