import pytest

from turngym.agents.rollout.branching import Event, Spawn


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"node": -1}, "Spawn.node is -1; it must be at least 0"),
        ({"node": 0, "token": -1}, "Spawn.token is -1; it must be at least 0"),
        ({"node": 0, "n": 0}, "Spawn.n is 0; it must be at least 1"),
    ],
)
def test_a_spawn_out_of_range_is_refused(part, message):
    with pytest.raises(ValueError, match=message):
        Spawn(**part)


def test_a_spawn_left_alone_is_one_trained_path_drawn_as_the_rollout_draws():
    spawn = Spawn(3)
    assert (spawn.node, spawn.token, spawn.n, spawn.trained) == (3, 0, 1, True)
    assert spawn.temperature is spawn.forced_token is spawn.max_tokens is None


def test_events_and_spawns_are_values():
    assert Event("turn", 2, 1, 5) == Event("turn", 2, 1, 5) != Event("end", 2, 1, 5)
    assert len({Spawn(0), Spawn(0), Spawn(0, token=1)}) == 2
