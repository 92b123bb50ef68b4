import json
import re
from dataclasses import replace

import pytest
import torch

from turngym.agents.engine import Sampling
from turngym.agents.trajectory import Event, Spawn
from turngym.envs import Outcome
from turngym.training.control.chain import chain
from turngym.training.control.control import (
    Control,
    Needs,
    Request,
    Stats,
    Verdict,
    advantages,
    numbers_of,
)
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms

STATS = Stats(step=0, phase="update", entropy=0.5)


def functional(logits, drawn):
    return logits.amax(-1)


def test_a_control_without_parts_changes_nothing(toy) -> None:
    control = Control(name="nothing")
    state, batch, sampling, stats = (
        control.init(),
        toy.batch,
        Sampling(temperature=0.7),
        Stats(0, "update"),
    )
    terms = start_terms(batch.logp_old)
    assert state == {}
    assert control.sample(sampling, state) is sampling
    assert control.select(["a tree", "another"], state) == [Verdict.KEEP, Verdict.KEEP]
    assert control.reward(batch, state) is batch.turns.score
    assert control.shape(terms, batch, Now.at_start(batch), state) is terms
    assert control.observe(stats, state) == (state, frozenset())
    assert control.plan is None
    assert control.credit is None


def test_without_credit_the_advantage_is_the_score_and_zero_where_there_is_none(batch_of) -> None:
    ends = [Outcome.DONE, Outcome.TRUNCATED, Outcome.TOOL_ERROR]
    batch = batch_of([[2], [1, 1], [1]], scores=[1.0, 0.5, float("nan")], ends=ends)
    assert advantages(Control(name="nothing"), batch, {}).tolist() == [1, 1, 0.5, 0.5, 0]


def test_a_credit_cannot_teach_from_a_path_that_earned_no_score(batch_of) -> None:
    batch = batch_of(
        [[1], [2]], scores=[1.0, float("nan")], ends=[Outcome.DONE, Outcome.INFRA_ERROR]
    )
    control = Control(name="careless", credit=lambda batch, state: batch.turns.score[batch.row] + 1)
    assert advantages(control, batch, {}).tolist() == [2, 0, 0]


def test_credit_sees_the_score_that_reward_leaves(batch_of) -> None:
    batch = batch_of([[2, 1], [1]], scores=[1.0, 3.0])
    control = Control(
        name="doubled",
        reward=lambda batch, state: 2 * batch.turns.score,
        credit=lambda batch, state: (batch.turns.score + batch.turns.turn)[batch.row],
    )
    assert advantages(control, batch, {}).tolist() == [2, 2, 3, 6]
    assert batch.turns.score.tolist() == [1, 1, 3]


def test_needs_join() -> None:
    one = Needs(logp_ref=True, functionals={"top": functional})
    other = Needs(entropy_grad=True, now=True, functionals={"top": functional})
    both = one | other
    assert (both.logp_ref, both.entropy_grad, both.now) == (True, True, True)
    assert both.functionals == {"top": functional}
    assert Needs() | Needs() == Needs()


def test_needs_refuse_two_things_of_one_name() -> None:
    one, other = (
        Needs(functionals={"top": function})
        for function in (functional, lambda logits, drawn: drawn)
    )
    with pytest.raises(ValueError, match="different functionals called 'top'; rename one"):
        one | other


def test_sampling_check_their_values() -> None:
    with pytest.raises(ValueError, match="temperature is -1"):
        replace(Sampling(), temperature=-1)


def test_of_two_verdicts_the_greater_one_holds() -> None:
    assert max(Verdict.KEEP, Verdict.DROP) is Verdict.DROP
    assert max(Verdict.DROP, Verdict.MORE) is Verdict.MORE


def test_a_plan_answers_an_event_with_spawns() -> None:
    def plan(tree, event, key, state):
        return [Spawn(event.node, 5, n=min(2, event.budget))] if event.kind == "turn" else []

    control = Control(name="forks", plan=plan)
    assert control.plan(None, Event("turn", node=3, branch=0, budget=1), (0, 1, 2), {}) == [
        Spawn(3, 5, n=1)
    ]
    assert control.plan(None, Event("idle", node=0, branch=-1, budget=1), (0, 1, 2), {}) == []


def test_the_advantage_keeps_the_dtype(toy) -> None:
    assert advantages(Control(name="nothing"), toy.batch, {}).dtype == torch.float64


def counter(name, *, sets=frozenset(), scale=2.0, request=frozenset()):
    """A control that multiplies the weight by `scale` and counts what it observes."""

    def observe(stats, state):
        return {"seen": state["seen"] + 1, "entropy": stats.entropy}, request

    return Control(
        name=name,
        sets=frozenset(sets),
        init=lambda: {"seen": 0},
        shape=lambda terms, batch, now, state: replace(
            terms, weight=terms.weight * scale + state["seen"]
        ),
        observe=observe,
    )


def crediting(name, value):
    return Control(
        name=name,
        sets=frozenset({"credit"}),
        credit=lambda batch, state: value * batch.turns.score[batch.row],
    )


def behaviour(control, toy):
    """Return everything a control does to the toy in one step, and its state after it."""
    state, batch = control.init(), toy.batch
    terms = control.shape(
        start_terms(advantages(control, batch, state)), batch, Now.at_start(batch), state
    )
    columns = [
        column.tolist() for column in vars(terms).values() if isinstance(column, torch.Tensor)
    ]
    return (
        columns,
        control.observe(STATS, state),
        control.sample(Sampling(), state),
        control.needs,
        control.sets,
    )


def test_controls_run_from_left_to_right_each_with_its_own_state(toy) -> None:
    control = chain(counter("a", scale=2.0), counter("b", scale=3.0))
    terms = control.shape(
        start_terms(toy.batch.logp_old), toy.batch, None, [{"seen": 1}, {"seen": 10}]
    )
    assert set(terms.weight.tolist()) == {(1 * 2 + 1) * 3 + 10}
    assert control.init() == [{"seen": 0}, {"seen": 0}]
    assert control.observe(STATS, control.init())[0] == [{"seen": 1, "entropy": 0.5}] * 2
    assert control.name == "a,b"


def test_chain_is_associative(toy) -> None:
    a, b, c = counter("a", scale=2.0), counter("b", scale=3.0), crediting("c", 2.0)
    flat = behaviour(chain(a, b, c), toy)
    assert behaviour(chain(a, chain(b, c)), toy) == flat
    assert behaviour(chain(chain(a, b), c), toy) == flat
    assert behaviour(chain(chain(a), chain(), chain(b, chain(c))), toy) == flat


def test_the_empty_chain_is_the_identity(toy) -> None:
    a = counter("a")
    assert (
        behaviour(chain(chain(), a), toy)
        == behaviour(chain(a, chain()), toy)
        == behaviour(chain(a), toy)
    )
    columns, observed, sampling, needs, sets = behaviour(chain(), toy)
    plain = start_terms(advantages(Control(name="nothing"), toy.batch, {}))
    assert columns == [
        column.tolist() for column in vars(plain).values() if isinstance(column, torch.Tensor)
    ]
    assert (observed, sampling, needs, sets) == (
        ([], frozenset()),
        Sampling(),
        Needs(),
        frozenset(),
    )
    assert chain().plan is None
    assert chain().credit is None


def test_two_controls_that_set_the_same_thing_are_refused_by_name() -> None:
    a, b, c = counter("a"), counter("tight", sets={"clip"}), counter("loose", sets={"clip"})
    message = "tight and loose both set clip; remove one (in Python, chain(..., ordered=True) lets loose win)"
    for clash in (
        lambda: chain(a, b, c),
        lambda: chain(chain(a, b), c),
        lambda: chain(b, chain(a, c)),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            clash()


def test_ordered_lets_the_later_one_win_and_stays_settled_in_larger_chains(toy) -> None:
    ordered = chain(crediting("one", 1.0), crediting("ten", 10.0), ordered=True)
    rewarded = toy.batch.turns.rewarded[toy.batch.row]
    slots = advantages(ordered, toy.batch, ordered.init())[rewarded]
    assert torch.equal(slots, 10 * toy.batch.turns.score[toy.batch.row][rewarded])
    assert chain(ordered, counter("a")).sets == {"credit"}


def test_rewards_add_up_in_order(toy) -> None:
    plus = Control(name="plus", reward=lambda batch, state: batch.turns.score + 1)
    times = Control(name="times", reward=lambda batch, state: batch.turns.score * 3)
    control = chain(plus, times, crediting("c", 1.0))
    expected = ((toy.batch.turns.score + 1) * 3)[toy.batch.row].nan_to_num(0.0)
    assert torch.equal(advantages(control, toy.batch, control.init()), expected)


def test_sampling_plans_verdicts_requests_and_needs_are_joined() -> None:
    hot = Control(
        name="hot",
        sample=lambda sampling, state: replace(sampling, temperature=1.2),
        needs=Needs(logp_ref=True),
    )
    forks = Control(name="forks", plan=lambda tree, event, key, state: [Spawn(event.node, 7)])
    picky = Control(name="picky", select=lambda trees, state: [Verdict(tree) for tree in trees])
    stops = counter("stops", request=frozenset({Request.STOP}))
    resets = counter("resets", request=frozenset({Request.RESET_OPTIMIZER}))
    control = chain(hot, forks, forks, picky, stops, resets)
    state = control.init()
    assert control.sample(Sampling(), state) == Sampling(temperature=1.2)
    assert control.plan(None, Event("turn", 3, 0, 9), (0,), state) == [Spawn(3, 7), Spawn(3, 7)]
    assert control.select([0, 2, 1], state) == [Verdict.KEEP, Verdict.MORE, Verdict.DROP]
    assert control.observe(STATS, state)[1] == {Request.STOP, Request.RESET_OPTIMIZER}
    assert control.needs == Needs(logp_ref=True)


def test_the_last_replay_holds_and_gets_its_own_state() -> None:
    one, other = (
        Control(name=name, replay=lambda state, name=name: (name, state))
        for name in ("one", "other")
    )
    assert chain(one, counter("c")).replay([{"a": 1}, {}]) == ("one", {"a": 1})
    assert chain(one, counter("c"), other).replay([{}, {}, {"b": 2}]) == ("other", {"b": 2})
    assert chain(counter("c")).replay is None


def test_the_state_survives_json_to_the_bit() -> None:
    control = chain(counter("a"), counter("b"))
    state = control.init()
    for step in range(3):
        state, _ = control.observe(
            Stats(step=step, phase="update", entropy=0.1 + 0.2 * step), state
        )
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize("state", [[], [{}], {}, None])
def test_a_state_of_another_chain_is_refused(state) -> None:
    with pytest.raises(
        ValueError, match=r"the state of the controls \[a,b\] is .*; it must be a list of 2 states"
    ):
        chain(counter("a"), counter("b")).sample(Sampling(), state)


def test_the_numbers_of_a_state_are_metrics_by_their_place_in_it():
    state = [
        {"sum": 1.5, "on": True, "name": "x", "0": {"error": 2}},
        {"kept": list(range(99)), "by": [0.5, None]},
    ]
    both = chain(Control(name="one"), Control(name="two"))
    assert numbers_of(both, state) == {
        "control/one/sum": 1.5,
        "control/one/on": 1,
        "control/one/0/error": 2,
        "control/two/kept/entries": 99,
        "control/two/by/0": 0.5,
    }
    assert numbers_of(Control(name="one"), state[0])["control/one/sum"] == 1.5
