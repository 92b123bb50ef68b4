from dataclasses import replace

import pytest
import torch

from turngym.agents.branching import Event, Spawn
from turngym.envs import Outcome
from turngym.training.columns import Now
from turngym.training.control import Control, Knobs, Needs, Stats, Verdict, advantages, require
from turngym.training.objective import start_terms


def functional(logits, drawn):
    return logits.amax(-1)


def test_a_control_without_parts_changes_nothing(toy) -> None:
    control = Control(name="nothing")
    state, batch, knobs, stats = control.init(), toy.batch, Knobs(temperature=0.7), Stats(0, "update")
    terms = start_terms(batch.logp_old)
    assert state == {}
    assert control.sample(knobs, state) is knobs
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
    batch = batch_of([[1], [2]], scores=[1.0, float("nan")], ends=[Outcome.DONE, Outcome.INFRA_ERROR])
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
    one = Needs(logp_ref=True, columns=frozenset({"cluster"}), functionals={"top": functional})
    other = Needs(entropy_grad=True, now=True, functionals={"top": functional})
    both = one | other
    assert (both.logp_ref, both.entropy_grad, both.now) == (True, True, True)
    assert both.columns == {"cluster"}
    assert both.functionals == {"top": functional}
    assert Needs() | Needs() == Needs()


def test_needs_refuse_two_things_of_one_name() -> None:
    one, other = (Needs(functionals={"top": function}) for function in (functional, lambda logits, drawn: drawn))
    with pytest.raises(ValueError, match="different functionals called 'top'; rename one"):
        one | other


def test_knobs_check_their_values() -> None:
    with pytest.raises(ValueError, match="temperature is -1"):
        replace(Knobs(), temperature=-1)


def test_of_two_verdicts_the_greater_one_holds() -> None:
    assert max(Verdict.KEEP, Verdict.DROP) is Verdict.DROP
    assert max(Verdict.DROP, Verdict.MORE) is Verdict.MORE


def test_a_plan_answers_an_event_with_spawns() -> None:
    def plan(tree, event, key, state):
        return [Spawn(event.node, 5, n=min(2, event.budget))] if event.kind == "turn" else []

    control = Control(name="forks", plan=plan)
    assert control.plan(None, Event("turn", node=3, branch=0, budget=1), (0, 1, 2), {}) == [Spawn(3, 5, n=1)]
    assert control.plan(None, Event("idle", node=0, branch=-1, budget=1), (0, 1, 2), {}) == []


def test_require_names_method_parameter_value_and_rule() -> None:
    require(True, "epo", "alpha", 1, "anything")
    with pytest.raises(ValueError, match=r"^epo: alpha is -1; it must be 0 or more$"):
        require(False, "epo", "alpha", -1, "0 or more")


def test_the_advantage_keeps_the_dtype(toy) -> None:
    assert advantages(Control(name="nothing"), toy.batch, {}).dtype == torch.float64
