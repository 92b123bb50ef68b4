import json

from turngym.envs.household.state import State, changed, members

STATE = State(3, -1, (5, 0), (1, 2, 1 << 70), 2, 1, 0, 4, 0, 0, (0, 1))


def test_a_state_is_json_and_back():
    assert State.from_json(json.loads(json.dumps(STATE.to_json()))) == STATE
    assert STATE.to_json()["inside"] == [5, 0] and STATE.to_json()["held"] == -1


def test_sets_are_iterated_in_order():
    assert list(members(0)) == []
    assert list(members(1 << 70 | 0b1011)) == [0, 1, 3, 70]


def test_one_value_is_changed():
    assert changed((1, 2, 3), 0, 9) == (9, 2, 3) and changed((1, 2, 3), 2, 9) == (1, 2, 9)
