"""What actions tell: against exact sums over small worlds, float64."""

from itertools import product
from math import comb, log

import numpy as np
import pytest

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.data.packing import choice_of, pack
from turngym.training.metrics.actions import Acted, acted, mutual_information
from turngym.training.metrics.telemetry import stats

NAN = float("nan")


def turn(parent, tokens, entropy=None, logp=None, thought=0, **info):
    ids = np.array(tokens, np.int32)
    entropy = np.array([0.5] * len(ids) if entropy is None else entropy, np.float32)
    logp = np.array([-1.0] * len(ids) if logp is None else logp, np.float32)
    drawn = np.ones(len(ids), np.bool_)
    return Turn(parent, "assistant", "", ids, drawn, logp, entropy, thought=thought, info=info)


def heard(parent, text):
    return Turn.unsampled(parent, "user", text, np.zeros(2, np.int32))


def tree(paths, task=0):
    """A tree of paths, each of them turns and what was answered to them in between."""
    made = Tree((0, 0, task), task, str(task), [heard(-1, "?")])
    for branch, path in enumerate(paths):
        node = 0
        for said in path:
            node = made.add(heard(node, said) if isinstance(said, str) else turn(node, **said))
        made.leaves.append(Leaf(node, branch, Outcome.DONE, "answered", 1.0))
    return made


def measured(*trees):
    return acted(list(trees), pack(list(trees)).batch)


def entropy(p):
    return -sum(x * log(x) for x in p if x > 0)


FIRST = {0: 0.5, 1: 0.375, 2: 0.125}
SECOND = {0: {3: 1.0}, 1: {3: 2 / 3, 4: 1 / 3}, 2: {3: 1.0}}
EXACT = {(a, b): p * q for a, p in FIRST.items() for b, q in SECOND[a].items()}


def sampled(weights, n):
    """Actions as often as their probability says."""
    for (a, b), weight in weights.items():
        h = [entropy(FIRST.values()), entropy(SECOND[a].values())]
        yield from [
            [{"tokens": [a, b], "entropy": h, "logp": [log(FIRST[a]), log(SECOND[a][b])]}]
        ] * round(n * weight)


def test_of_a_whole_distribution_all_three_entropies_are_the_entropy_of_the_action():
    _, means = measured(tree(sampled(EXACT, 8)))
    wanted = entropy(EXACT.values())
    for name in ("action_entropy", "decision_entropy", "surprise"):
        assert means[name] == means[f"{name}/0"] == pytest.approx(wanted, abs=1e-6), name


def test_the_mean_over_all_draws_is_what_its_distribution_says():
    """All 81 draws of four from three actions, against the sum over how often each action is drawn."""
    p, n, found = [0.5, 0.3, 0.2], 4, 0.0
    for draw in product(range(3), repeat=n):
        _, means = measured(tree([[{"tokens": [a]}] for a in draw]))
        found += float(np.prod([p[a] for a in draw])) * means["action_entropy/0"]
    wanted = sum(
        comb(n, c) * x**c * (1 - x) ** (n - c) * -(c / n) * log(c / n)
        for x in p
        for c in range(1, n + 1)
    )
    assert found == pytest.approx(wanted, abs=1e-12)


def test_a_thought_is_no_action_and_what_is_alike_decides_nothing():
    said = [
        {"tokens": [i, 7, 8, a, 9], "entropy": [5, 1, 2, 4, 3], "thought": 1}
        for i, a in enumerate([1, 1, 2])
    ]
    found, means = measured(tree([[one] for one in said]))
    assert means["action_entropy"] == pytest.approx(entropy([2 / 3, 1 / 3]))
    assert (
        means["decision_entropy"] == 4
    )  # the fourth token alone: behind it the two that agree do not part
    assert [one.decision_entropy for (one,) in found.values()] == [4, 4, 4]


def test_an_action_that_ends_where_another_goes_on_has_no_token_that_says_so():
    _, means = measured(tree([[{"tokens": [1]}], [{"tokens": [1, 2], "entropy": [3, 6]}]]))
    assert (means["action_entropy"], means["decision_entropy"]) == (pytest.approx(log(2)), 3)


def test_invalid_actions_are_counted_apart():
    paths = [[{"tokens": [a], "valid": a < 5}] for a in (1, 1, 2, 5, 6)] + [[{"tokens": [1]}]]
    found, means = measured(tree(paths))
    assert (
        means["valid_actions"] == means["valid_actions/0"] == 3 / 5
    )  # of one the environment did not say it
    assert means["action_entropy"] == pytest.approx(entropy([3 / 4, 1 / 4]))
    assert [one.valid for (one,) in found.values()] == [True, True, True, False, False, None]
    assert np.isnan([one.action_entropy for (one,) in found.values()]).tolist() == [False] * 3 + [
        True
    ] * 2 + [False]


def test_only_those_who_read_the_same_are_siblings():
    """Three hear the same answer, one another; at the third turn two of the three still share all that they read."""
    told = ["red", "red", "red", "blue"]
    paths = [[{"tokens": [1]}, text, {"tokens": [a]}] for text, a in zip(told, (1, 2, 2, 3))]
    paths[0] += ["end", {"tokens": [4]}]
    paths[1] += ["end", {"tokens": [5]}]
    paths[2] += ["END", {"tokens": [6]}]
    found, means = measured(tree(paths))
    assert means["action_entropy/0"] == 0 and means["action_entropy/2"] == pytest.approx(log(2))
    assert means["action_entropy/1"] == pytest.approx(entropy([1 / 3, 2 / 3]))
    assert np.isnan(found[0, 0, 0, 3][1].action_entropy) and np.isnan(
        found[0, 0, 0, 2][2].action_entropy
    )
    assert {key: len(own) for key, own in found.items()} == {
        (0, 0, 0, i): n for i, n in enumerate([3, 3, 3, 2])
    }


def test_siblings_of_other_trees_are_none_and_a_single_path_has_none():
    _, means = measured(tree([[{"tokens": [1]}]]), tree([[{"tokens": [2]}]], task=1))
    assert means == {"surprise": 1, "surprise/0": 1}


def test_choices_are_what_actions_come_down_to():
    """Four texts, of which two call one tool and one another; an answer is a choice whatever it says."""
    one = tree(
        [
            [{"tokens": [1], "tool": "a"}],
            [{"tokens": [2], "tool": "a"}],
            [{"tokens": [3], "tool": "b"}],
        ]
    )
    _, means = measured(one)
    assert means["choice_entropy/0"] == pytest.approx(entropy([2 / 3, 1 / 3]))
    assert means["action_entropy/0"] == pytest.approx(log(3))
    infos = (
        {"led": "won", "state": "s"},
        {"answer": "7", "tool": None},
        {"tool": "python"},
        {"command": "go to"},
        {},
    )
    assert [choice_of(info) for info in infos] == ["won", "answer", "python", "go", ""]
    assert pack([one]).batch.turns.choice.tolist() == [0, 0, 1]


def test_a_turn_that_paths_share_was_made_once():
    one = tree(
        [[{"tokens": [1], "logp": [-4]}, "go", {"tokens": [1]}], [{"tokens": [2], "logp": [-1]}]]
    )
    node = one.add(turn(2, [2]))
    one.leaves.append(Leaf(node, 2, Outcome.DONE, "answered", 0.0, parent=0, fork=2))
    found, means = measured(one)
    assert means["surprise/0"] == 2.5 and means["action_entropy/1"] == pytest.approx(log(2))
    assert (
        found[0, 0, 0, 0][0]
        == found[0, 0, 0, 2][0]
        == Acted(4, None, means["action_entropy/0"], 0.0, 0.5)
    )


def test_failed_paths_and_probes_are_left_out():
    one = tree([[{"tokens": [1]}], [{"tokens": [2]}], [{"tokens": [3]}], [{"tokens": [4]}]])
    one.leaves[2] = Leaf(3, 2, Outcome.INFRA_ERROR, "infra_error", NAN)
    one.leaves[3] = Leaf(4, 3, Outcome.DONE, "answered", 1.0, trained=False)
    found, means = measured(one)
    assert set(found) == {(0, 0, 0, 0), (0, 0, 0, 1)} and means["action_entropy"] == pytest.approx(
        log(2)
    )


def test_information_is_that_of_the_joint_distribution():
    """Counts of three prompts and two actions; by sums over the table, and Miller's correction by hand."""
    counts = np.array([[6, 2], [1, 7], [4, 4]])
    p = counts / counts.sum()
    plain = (p * np.log(p / (p.sum(1, keepdims=True) * p.sum(0)))).sum()
    pairs = [(x, a) for x in range(3) for a in range(2) for _ in range(counts[x, a])]
    assert mutual_information(pairs) == pytest.approx(plain - (6 - 3 - 2 + 1) / (2 * 24), abs=1e-12)
    trees = [tree([[{"tokens": [a]}] for x, a in pairs if x == task], task) for task in range(3)]
    _, means = measured(*trees)
    assert (
        means["mutual_information/0"] == mutual_information(pairs)
        and "mutual_information" not in means
    )


def test_information_of_what_does_not_depend_is_near_zero_on_average():
    rng = np.random.default_rng(0)
    found = [
        mutual_information([(x, int(rng.integers(3))) for x in range(8) for _ in range(8)])
        for _ in range(400)
    ]
    assert abs(np.mean(found)) < 0.03 < 7 * 2 / (2 * 64)  # the bias without a correction
    assert np.isnan(mutual_information([(0, 1), (0, 2)])) and np.isnan(
        mutual_information([(0, 1), (1, 2)])
    )
    assert mutual_information([(x, x) for x in range(4) for _ in range(8)]) == pytest.approx(
        log(4) + 3 / 64
    )


def test_a_step_measures_them_for_controls_and_for_its_line():
    trees = [tree([[{"tokens": [1], "valid": True}], [{"tokens": [2], "valid": False}]])]
    found = stats(0, pack(trees).batch, trees)
    assert [(one.surprise, one.valid) for (one,) in found.acted.values()] == [(1, True), (1, False)]
    assert found.extras["valid_actions/0"] == 0.5 and "action_entropy/0" not in found.extras
