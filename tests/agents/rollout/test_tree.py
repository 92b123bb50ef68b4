"""Trees that grow in rounds, on a random byte-level policy in an environment that answers anything."""

import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import Deadlines
from turngym.agents.engine import Sampling, keyed_rng
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.journal.replay import replay
from turngym.agents.journal.trees import Incident, from_json, to_json
from turngym.agents.policy import load_policy
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.agents.trajectory import Event, Plan, Spawn, Tree
from turngym.envs import Outcome, Reply, StopReason, TextEnv
from turngym.training.data.packing import pack

TURNS = 3


def dice(text: str, sides: int) -> int:
    return sha256(text.encode()).digest()[0] % sides


class Ledger(TextEnv):
    """Remembers all it was told and says so; its episodes have `TURNS` turns. What fails, fails by what it was told."""

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"broken", "live_copies"}

    def __init__(self, fails: int = 0, forks: bool = True) -> None:
        super().__init__()
        self.fails, self.forks = fails, forks
        self.broken: dict[str, int] = {}  # shared by all forks
        self.live_copies = [0]
        self.told: list[str] = []

    @property
    def tasks(self) -> range:
        return range(10)

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        self.told = []
        self.task_id = f"ledger-{options['task']}"
        return f"begin {options['task']}"

    def on_step(self, text: str) -> Reply:
        self.told.append(text)
        page = "|".join(self.told)
        if self.fails and dice(page, 3) == 0 and self.broken.setdefault(page, 0) < self.fails:
            self.broken[page] += 1
            raise RuntimeError("lost")
        stop = StopReason.ANSWERED if len(self.told) == TURNS else None
        return Reply(str(dice(page, 100)), reward=0.25 * dice(page, 4), stop=stop)

    def fork(self) -> "Ledger":
        if self.told and not self.forks:
            raise RuntimeError("cannot be forked here")
        twin = super().fork()
        self.live_copies[0] += 1
        return twin

    def close(self) -> None:
        self.live_copies[0] -= 1


@pytest.fixture(scope="module")
def actor(qwen3_folder: Path) -> Iterator[Actor]:
    policy = load_policy(qwen3_folder)
    engine = TorchEngine(policy)
    yield Actor(engine, Chat.from_folder(qwen3_folder), policy.end_ids)
    engine.close()


def grow(
    actor: Actor, plan: Plan, env: TextEnv | None = None, group: int = 8, **options: Any
) -> list[Tree]:
    given = {"key": (3, 5), "sampling": Sampling(max_tokens=4), "tasks": range(2), **options}
    return collect(actor, env or Ledger(), group=group, plan=plan, **given)


def each_turn(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
    """Two paths at first, and one more behind every answer."""
    if event.kind == "start":
        return [Spawn(0, n=2)]
    return [Spawn(event.node)] if event.kind == "turn" else []


def at_tokens(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
    """Forks behind some tokens of the turn that just ended, and of the one before it."""
    if event.kind != "turn":
        return [Spawn(0)] if event.kind == "start" else []
    said = tree.turns[event.node].parent
    before = tree.turns[tree.turns[said].parent].parent
    return [Spawn(said, token=2), *([Spawn(before, token=1)] if before > 0 else [])]


def at_random(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
    rng = keyed_rng((*key, event.node, len(event.kind)))
    places = [0] + [i for i, turn in enumerate(tree.turns) if turn.role == "assistant"]
    if event.kind == "turn":
        places.append(event.node)
    node = int(rng.choice(places))
    inside = tree.turns[node].role == "assistant"
    token = int(rng.integers(1, len(tree.turns[node].tokens) + 1)) if inside else 0
    return (
        [Spawn(node, token, n=int(rng.integers(1, 4)), trained=bool(rng.random() < 0.9))]
        if rng.random() < 0.4
        else []
    )


PLANS = {"each turn": each_turn, "tokens": at_tokens, "random": at_random}
each = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def written(trees: list[Tree]) -> list[dict[str, Any]]:
    return [to_json(tree) for tree in trees]


def test_paths_are_forked_behind_answers_until_the_budget_is_spent(actor):
    for tree in grow(actor, each_turn):
        assert [leaf.branch for leaf in tree.leaves] == list(range(8))
        assert [(leaf.parent, leaf.fork) for leaf in tree.leaves[:2]] == [(-1, 0)] * 2
        forked = tree.leaves[2:]
        assert [leaf.parent for leaf in forked] == [
            0,
            1,
            0,
            1,
            2,
            3,
        ]  # after the first turn, then after the second
        for leaf in forked:
            path, parent = tree.path(leaf), tree.path(tree.leaves[leaf.parent])
            shared = path.index(leaf.fork) + 1
            assert path[:shared] == parent[:shared] and path[shared] != parent[shared]
            assert tree.turns[leaf.fork].role != "assistant"
        # 2 + 4 + 8 turns and their answers but the last, and the prompt: nothing is stored twice
        assert len(tree.turns) == 1 + (2 + 4 + 8) + (2 + 4)


@each
def test_budgets_are_exact_and_every_path_replays(actor, plan):
    env = Ledger()
    trees = grow(actor, plan, env, group=9)
    assert env.live_copies == [0]
    for tree in trees:
        assert sum(leaf.trained for leaf in tree.leaves) == 9
        assert [leaf.branch for leaf in tree.leaves] == list(range(len(tree.leaves)))
        assert replay(Ledger(), tree) is None
        for leaf in tree.leaves:
            assert leaf.score == sum(tree.turns[node].reward for node in tree.replies(leaf))
            assert len(tree.replies(leaf)) == TURNS
    assert written([from_json(row) for row in written(trees)]) == written(trees)


@each
def test_what_is_in_flight_what_fails_and_what_cannot_be_forked_change_no_bit(actor, plan):
    small = {"group": 5, "sampling": Sampling(max_tokens=3)}
    trees = written(grow(actor, plan, **small))
    assert written(grow(actor, plan, in_flight=1, **small)) == trees
    seen: list[Incident] = []
    assert written(grow(actor, plan, Ledger(fails=1), on_incident=seen.append, **small)) == trees
    assert {incident.kind for incident in seen} == {"retry"}
    seen.clear()
    assert (
        written(grow(actor, plan, Ledger(forks=False), on_incident=seen.append, **small)) == trees
    )
    if plan is each_turn:  # its forks are those of live environments
        assert {(incident.kind, incident.what) for incident in seen} == {
            ("retry", "RuntimeError: cannot be forked here")
        }


def test_a_path_that_fails_for_good_takes_its_place_in_the_budget(actor):
    env = Ledger(fails=99)
    trees = grow(
        actor, each_turn, env, deadlines=Deadlines(retries=1), sampling=Sampling(max_tokens=2)
    )
    leaves = [leaf for tree in trees for leaf in tree.leaves]
    assert [len(tree.leaves) for tree in trees] == [8] * 2 and env.live_copies == [0]
    lost = [leaf for leaf in leaves if leaf.outcome is Outcome.INFRA_ERROR]
    assert 0 < len(lost) < len(leaves) and all(np.isnan(leaf.score) for leaf in lost)


def test_a_step_that_is_over_ends_every_path_of_its_trees_where_it_is(actor):
    class Slow(Ledger):
        def on_step(self, text: str) -> Reply:
            time.sleep(0.1)
            return super().on_step(text)

    for tree in grow(actor, each_turn, Slow(), in_flight=1, deadlines=Deadlines(step_deadline=0.6)):
        assert [leaf.branch for leaf in tree.leaves] == list(range(8))
        for leaf in tree.leaves:
            assert leaf.rewarded or leaf.info["deadline"] == "step"


@each
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logp_and_entropy_are_those_of_the_plain_model_on_the_path(
    actor, qwen3_folder, plan, temperature
):
    plain = AutoModelForCausalLM.from_pretrained(qwen3_folder, attn_implementation="eager").double()
    for tree in grow(
        actor, plan, group=6, tasks=range(1), sampling=Sampling(temperature, max_tokens=4)
    ):
        for leaf in tree.leaves:
            tokens = torch.from_numpy(tree.tokens(leaf).astype(np.int64))
            drawn = np.concatenate([tree.turns[node].sampled for node in tree.path(leaf)])
            with torch.no_grad():
                logits = plain(input_ids=tokens[None]).logits[0, :-1]
            logp = (logits / temperature).log_softmax(-1).gather(-1, tokens[1:, None])[:, 0].numpy()
            entropy = torch.distributions.Categorical(logits=logits).entropy().numpy()
            for column, truth in (("logp_roll", logp), ("entropy", entropy)):
                stored = np.concatenate(
                    [getattr(tree.turns[node], column) for node in tree.path(leaf)]
                )
                np.testing.assert_allclose(stored[drawn], truth[drawn[1:]], atol=1e-5)


def test_a_turn_forked_at_a_token_repeats_what_stands_before_and_is_learned_from_once(actor):
    trees = grow(actor, at_tokens)
    forked = [(tree, leaf) for tree in trees for leaf in tree.leaves if leaf.token]
    assert {leaf.token for _, leaf in forked} == {1, 2}
    for tree, leaf in forked:
        (turn,) = (
            tree.turns[node] for node in tree.path(leaf) if tree.turns[node].twin == leaf.fork
        )
        twin = tree.turns[leaf.fork]
        assert turn.copied == leaf.token and turn.parent == twin.parent
        for name in ("tokens", "logp_roll", "entropy", "sampled"):
            assert np.array_equal(
                getattr(turn, name)[: leaf.token], getattr(twin, name)[: leaf.token]
            )
    packed = pack(trees)
    drawn = sum(int(turn.sampled[turn.copied :].sum()) for tree in trees for turn in tree.turns)
    assert len(packed.batch.token.unique()) == drawn
    assert packed.batch.share.sum().item() == pytest.approx(drawn)


def test_probes_are_no_part_of_the_budget_and_are_not_learned_from(actor):
    def probing(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
        if event.kind == "start":
            assert event == Event("start", 0, -1, 4)
            return [Spawn(0, n=2, trained=False)]
        if event.kind == "idle" and event.budget == 4:
            assert len(tree.turns) == 1 + 2 * (2 * TURNS - 1)  # the probes have ended
            return [Spawn(0, n=3)]
        return []  # the last one is a top-up

    trees = grow(actor, probing, group=4)
    assert [[leaf.trained for leaf in tree.leaves] for tree in trees] == [
        [False, False, True, True, True, True]
    ] * 2
    assert pack(trees).batch.n_paths == 8


def test_the_first_turn_can_be_shorter_hotter_and_begin_with_a_forced_token(actor):
    def forcing(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
        return (
            [Spawn(0, n=3, max_tokens=2, temperature=0.5, forced_token=65)]
            if event.kind == "start"
            else []
        )

    for tree in grow(actor, forcing, group=3):
        for leaf in tree.leaves:
            first, second, _ = (tree.turns[node] for node in tree.replies(leaf))
            assert (first.tokens[0], first.sampled.tolist()) == (
                65,
                [False, *[True] * (len(first.tokens) - 1)],
            )
            assert 2 <= len(first.tokens) <= 3 and first.temperature == 0.5
            assert first.logp_roll[0] == first.entropy[0] == 0
            assert second.temperature == 1 and second.sampled.all()


def test_a_whole_path_can_be_shorter_and_hotter(actor):
    def heating(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
        return (
            [Spawn(0), Spawn(0, max_tokens=2, temperature=0.5, whole=True)]
            if event.kind == "start"
            else []
        )

    for tree in grow(actor, heating, group=2):
        plain, hot = ([tree.turns[node] for node in tree.replies(leaf)] for leaf in tree.leaves)
        assert {turn.temperature for turn in plain} == {1} and max(
            len(turn.tokens) for turn in plain
        ) > 2
        assert {turn.temperature for turn in hot} == {0.5} and max(
            len(turn.tokens) for turn in hot
        ) <= 2


@pytest.mark.parametrize(
    ("spawn", "named"),
    [
        (Spawn(99), "behind token 0 of turn 99"),
        (Spawn(1), "behind token 0 of turn 1"),  # what the agent said has no answer yet
        (Spawn(1, token=99), "behind token 99 of turn 1"),
        (Spawn(0, token=1), "behind token 1 of turn 0"),
    ],
)
def test_a_plan_that_asks_for_what_cannot_be_is_an_error(actor, spawn, named):
    with pytest.raises(ValueError, match=named):
        grow(actor, lambda tree, event, key: [Spawn(0)] if event.kind == "start" else [spawn])


def test_a_plan_that_never_has_enough_probes_is_an_error(actor):
    asked = []

    def probing(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
        asked.extend([event.kind] if event.kind == "idle" else [])
        return [Spawn(0, n=32, trained=False)] if event.kind == "idle" else []

    with pytest.raises(ValueError, match="more than 64 probes"):
        grow(actor, probing, tasks=range(1), sampling=Sampling(max_tokens=1))
    assert len(asked) == 3


# --- what a plan may ask for


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
