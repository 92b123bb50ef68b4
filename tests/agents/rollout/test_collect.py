"""Rollouts on a random byte-level policy in an environment that answers anything, and on tiny with the real tool."""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from math import isnan
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import Deadlines
from turngym.agents.engine import Cut, Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.evaluation.run import cut
from turngym.agents.journal.trees import Origin, read_trees, write_trees
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import load_policy
from turngym.agents.rollout.collect import collect, shuffled_scores
from turngym.agents.rollout.path import Actor
from turngym.agents.trajectory import Leaf, Tree
from turngym.envs import EnvFailure, Outcome, Reply, StopReason, TextEnv
from turngym.envs.registry import make
from turngym.tools import ToolFailure

SHORT = Sampling(max_tokens=6)


def dice(text: str, sides: int) -> int:
    """A number below `sides` that depends on the text alone, so that siblings that say different things part ways."""
    return sha256(text.encode()).digest()[0] % sides


class Talk(TextEnv):
    """Answers anything for `1 + task` turns. What it does about a text depends on the text, never on when it came."""

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"open", "lock"}
    tasks = range(100)

    def __init__(
        self, fails: Exception | float | None = None, slow: float = 0.0, opening: str = "Say."
    ) -> None:
        super().__init__(max_turns=9)
        self.fails, self.slow, self.opening = fails, slow, opening
        self.open: list[int] = []
        self.lock = threading.Lock()
        self.task = 0

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        self.task, self.task_id = options["task"], f"talk-{options['task']}"
        return f"{self.opening} {self.task}"

    def on_step(self, text: str) -> Reply:
        time.sleep(self.slow * dice(text, 5))
        broken = self.fails is not None and dice(text, 3) == 0
        if broken and isinstance(self.fails, Exception):
            raise self.fails
        reward = self.fails if broken else 0.25 * dice(text, 4)
        stop = StopReason.ANSWERED if self.turn == self.task else None
        return Reply(
            "and " * (dice(text, 3) + 1), reward=reward, stop=stop, info={"heard": len(text)}
        )

    def fork(self) -> "Talk":
        twin = super().fork()
        with self.lock:
            self.open.append(1)
        return twin

    def close(self) -> None:
        with self.lock:
            self.open.append(-1)


class Witness:
    """An engine that keeps what each session of another engine was given and drew, by branch."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.max_context = engine, engine.max_context
        self.sessions: list[WitnessSession] = []

    def session(self) -> "WitnessSession":
        return WitnessSession(self, self.engine.session())

    async def sync(self) -> None:
        await self.engine.sync()


class WitnessSession:
    def __init__(self, witness: Witness, inner: Any) -> None:
        self.witness, self.inner, self.key, self.closed = witness, inner, (), False
        self.seen: list[int] = []
        witness.sessions.append(self)

    async def sample(self, tokens: Any, sampling: Sampling, key: tuple[int, ...], cut: Any) -> Any:
        self.key = key[:-1]
        drawn = await self.inner.sample(tokens, sampling, key, cut)
        if len(drawn.tokens):
            self.seen += [*tokens.tolist(), *drawn.tokens.tolist()]
        return drawn

    @property
    def length(self) -> int:
        return self.inner.length

    def fork(self, length: int | None = None) -> "WitnessSession":
        return WitnessSession(self.witness, self.inner.fork(length))

    def close(self) -> None:
        self.closed = True
        self.inner.close()


def actor_of(
    folder: Path, ends: Cut | None = None, max_context: int = 0, **options: Any
) -> Iterator[Actor]:
    policy = load_policy(folder)
    policy.max_context = max_context or policy.max_context
    engine = TorchEngine(policy, **options)
    yield Actor(engine, Chat.from_folder(folder), policy.end_ids, ends)
    engine.close()


@pytest.fixture(scope="module")
def actor(qwen3_folder: Path) -> Iterator[Actor]:
    yield from actor_of(qwen3_folder)


@pytest.fixture(scope="module")
def tiny() -> Iterator[Actor]:
    yield from actor_of(TINY, cut(make("turngym/MathPython-v0"), Chat.from_folder(TINY)))


def bits(trees: list[Tree]) -> list[Any]:
    """All that a tree holds, arrays by their bytes."""

    def turn(turn: Any) -> dict[str, Any]:
        columns = {
            k: (v.dtype.str, v.tobytes())
            for k, v in vars(turn).items()
            if isinstance(v, np.ndarray)
        }
        return {**vars(turn), **columns, "info": dict(turn.info), "reward": repr(turn.reward)}

    def leaf(leaf: Leaf) -> dict[str, Any]:
        return {**vars(leaf), "info": dict(leaf.info), "score": repr(leaf.score)}

    return [
        (t.key, t.task, t.task_id, [turn(x) for x in t.turns], [leaf(x) for x in t.leaves])
        for t in trees
    ]


def grow(
    actor: Actor, env: TextEnv, tasks: Any = range(4), group: int = 4, **options: Any
) -> list[Tree]:
    return collect(
        actor, env, list(tasks), group=group, key=(3, 5), **{"sampling": SHORT, **options}
    )


@pytest.fixture(scope="module")
def talked(actor: Actor) -> list[Tree]:
    return grow(actor, Talk())


def test_one_in_flight_and_sixty_four_grow_the_same_trees_to_the_bit(actor, talked):
    assert bits(grow(actor, Talk(), in_flight=1)) == bits(talked)
    assert (
        len(
            {
                text
                for tree in talked
                for text in (turn.text for turn in tree.turns if turn.role == "assistant")
            }
        )
        > 9
    )


@pytest.mark.slow
def test_one_in_flight_and_sixty_four_use_the_python_tool_alike(tiny):
    env = make("turngym/MathPython-v0", max_turns=3)
    one, many = (
        grow(tiny, env, range(3), in_flight=n, sampling=Sampling(max_tokens=32)) for n in (1, 64)
    )
    assert bits(one) == bits(many)
    assert {turn.role for tree in many for turn in tree.turns} == {"user", "assistant", "tool"}


def test_slow_and_quick_environments_grow_the_same_trees(actor, talked):
    assert bits(grow(actor, Talk(slow=0.01))) == bits(talked)


def test_trees_come_in_the_order_of_tasks_with_branches_in_order_and_a_key_each(talked):
    assert [(tree.key, tree.task, tree.task_id) for tree in talked] == [
        ((3, 5, i), i, f"talk-{i}") for i in range(4)
    ]
    for tree in talked:
        assert [leaf.branch for leaf in tree.leaves] == [0, 1, 2, 3]
        assert [turn.parent < index for index, turn in enumerate(tree.turns)] == [True] * len(
            tree.turns
        )
        assert all(len(tree.replies(leaf)) == tree.task + 1 for leaf in tree.leaves)
        assert sum(turn.parent == -1 for turn in tree.turns) == 1


def test_another_seed_step_task_or_branch_draws_something_else(actor, talked):
    texts = [turn.text for turn in talked[0].turns if turn.role == "assistant"]
    for key in ((4, 5), (3, 6)):
        (other,) = collect(actor, Talk(), [0], group=4, key=key, sampling=SHORT)
        assert {turn.text for turn in other.turns if turn.role == "assistant"}.isdisjoint(texts)
    assert len(set(texts)) == 4


def test_finished_paths_are_handed_over_once_each_and_the_template_is_never_stepped(actor):
    env, seen = Talk(), []
    trees = grow(actor, env, [2, 0, 1], on_path=seen.append)
    assert sorted((path.task, path.leaves[0].branch) for path in seen) == [
        (i, j) for i in range(3) for j in range(4)
    ]
    for path in seen:
        (leaf,), whole = path.leaves, trees[[2, 0, 1].index(path.task)]
        twin = whole.leaves[leaf.branch]
        shown = [
            [tree.turns[node].text for node in tree.path(end)]
            for tree, end in ((path, leaf), (whole, twin))
        ]
        assert shown[0] == shown[1] and (leaf.stop, leaf.score) == (twin.stop, twin.score)
    assert [tree.task for tree in trees] == [2, 0, 1]
    assert not env.live and env.turn == 0


def test_branches_that_are_left_out_leave_the_others_as_they_are(actor, talked):
    trees = grow(actor, Talk(), [1, 3], skipped={1: {0, 2}, 3: {3}})
    assert [[leaf.branch for leaf in tree.leaves] for tree in trees] == [[1, 3], [0, 1, 2]]
    for tree in trees:
        for leaf in tree.leaves:
            whole = talked[tree.task]
            both = [(tree, leaf), (whole, whole.leaves[leaf.branch])]
            texts, scores = (
                [[one.turns[n].text for n in one.path(end)] for one, end in both],
                [e.score for _, e in both],
            )
            assert texts[0] == texts[1] and scores[0] == scores[1]


def test_every_fork_of_environment_and_session_is_closed(actor):
    env, witness = Talk(fails=RuntimeError("lost")), Witness(actor.engine)
    grow(replace(actor, engine=witness), env, deadlines=Deadlines(retries=0))
    assert sum(env.open) == 0 and env.open.count(1) == 4 * (1 + 4)
    grow(replace(actor, engine=witness), env, deadlines=Deadlines(retries=1))
    assert sum(env.open) == 0 and env.open.count(1) > 2 * 4 * (1 + 4)
    assert all(session.closed for session in witness.sessions)


def test_a_path_laid_end_to_end_is_what_the_model_saw(actor, tiny):
    runs = ((actor, Talk(), SHORT), (tiny, make("turngym/MathPython-v0"), Sampling(max_tokens=24)))
    for who, env, sampling in runs:
        witness = Witness(who.engine)
        trees = grow(replace(who, engine=witness), env, range(2), sampling=sampling)
        seen = {session.key: session.seen for session in witness.sessions if session.key}
        paths = {
            (*tree.key, leaf.branch): tree.tokens(leaf).tolist()
            for tree in trees
            for leaf in tree.leaves
        }
        # What the environment said last was no more part of a prompt, and is not part of the path either.
        assert paths == seen


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logp_and_entropy_are_those_of_the_plain_model_on_the_path(
    actor, qwen3_folder, temperature
):
    plain = AutoModelForCausalLM.from_pretrained(qwen3_folder, attn_implementation="eager").double()
    for tree in grow(actor, Talk(), range(3), 2, sampling=Sampling(temperature, max_tokens=6)):
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
                assert not stored[~drawn].any()
            assert all(tree.turns[node].temperature == temperature for node in tree.replies(leaf))


def test_a_path_decodes_to_the_conversation_as_the_template_renders_it(tiny):
    env, chat = make("turngym/MathPython-v0"), tiny.chat
    (tree,) = grow(tiny, env, [7], sampling=Sampling(max_tokens=32))
    _, info = env.reset(options={"task": 7})
    for leaf in tree.leaves:
        turns = [tree.turns[node] for node in tree.path(leaf)]
        talk = info["messages"] + [{"role": turn.role, "content": turn.text} for turn in turns[1:]]
        decoded = chat.tokenizer.decode(tree.tokens(leaf).tolist(), skip_special_tokens=False)
        rendered = chat.template.render(talk, info["tools"])
        assert rendered.removeprefix(decoded) == (
            "\n" if turns[-1].ended == "end" else "<|im_end|>\n"
        )


@pytest.mark.parametrize(
    ("failure", "outcome", "stop"),
    [
        (RuntimeError("lost"), Outcome.INFRA_ERROR, "infra_error"),
        (EnvFailure("lost"), Outcome.INFRA_ERROR, "infra_error"),
        (ToolFailure("lost"), Outcome.TOOL_ERROR, "tool_error"),
        (float("nan"), Outcome.INFRA_ERROR, "infra_error"),
        (float("inf"), Outcome.INFRA_ERROR, "infra_error"),
    ],
)
def test_a_failure_ends_its_own_branch_without_a_score_and_leaves_siblings_alone(
    actor, talked, failure, outcome, stop
):
    trees = grow(actor, Talk(fails=failure))
    fates = set()
    for tree, undisturbed in zip(trees, talked):
        for leaf, before in zip(tree.leaves, undisturbed.leaves):
            said = [undisturbed.turns[node].text for node in undisturbed.replies(before)]
            breaks = [turn for turn, text in enumerate(said) if dice(text, 3) == 0]
            fates.add(bool(breaks))
            if not breaks:
                assert np.array_equal(tree.tokens(leaf), undisturbed.tokens(before))
                assert (leaf.score, leaf.outcome) == (before.score, Outcome.DONE)
                continue
            assert (leaf.outcome, leaf.stop, isnan(leaf.score)) == (outcome, stop, True)
            assert not leaf.rewarded and len(tree.replies(leaf)) == breaks[0] + 1
            assert isnan(tree.turns[leaf.node].reward)
            assert ("lost" if isinstance(failure, Exception) else str(failure)) in leaf.info[
                "error"
            ]
    assert fates == {True, False}


def test_a_score_is_the_sum_of_what_the_turns_earned(talked):
    for tree in talked:
        for leaf in tree.leaves:
            rewards = [tree.turns[node].reward for node in tree.replies(leaf)]
            assert rewards == [0.25 * dice(tree.turns[node].text, 4) for node in tree.replies(leaf)]
            assert leaf.score == sum(rewards)


def test_a_turn_of_max_tokens_is_cut_closed_by_the_template_and_answered(talked, actor):
    cut = [
        (turn, tree.turns[index + 1])
        for tree in talked
        for index, turn in enumerate(tree.turns[:-1])
        if turn.ended == "length" and tree.turns[index + 1].parent == index
    ]
    assert cut
    for turn, answer in cut:
        assert len(turn.tokens) == SHORT.max_tokens and turn.sampled.all()
        closed = actor.chat.tokenizer.decode(answer.tokens.tolist(), skip_special_tokens=False)
        assert closed.startswith("<|im_end|>\n<|im_start|>user\nand ")
        assert closed.endswith("<|im_end|>\n<|im_start|>assistant\n") and not answer.sampled.any()


class Ends:
    closers = ("e", "the")

    def complete(self, text: str) -> bool:
        return any(closer in text for closer in self.closers)


def test_closers_cut_the_turn_at_the_token_that_completes_one(actor):
    ends = Ends.closers
    trees = grow(replace(actor, cut=Ends()), Talk(), sampling=Sampling(max_tokens=40))
    turns = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
    decode = actor.chat.tokenizer.decode
    assert {turn.ended for turn in turns} >= {"closer", "length"}
    for turn in turns:
        before = decode(turn.tokens[:-1].tolist(), skip_special_tokens=False)
        assert not any(end in before for end in ends)
        assert any(end in turn.text for end in ends) == (turn.ended == "closer")


def test_a_tool_call_of_tiny_is_cut_at_its_end_and_answered_by_the_tool(tiny):
    trees = grow(tiny, make("turngym/MathPython-v0"), range(4), sampling=Sampling(max_tokens=32))
    calls = [turn for tree in trees for turn in tree.turns if turn.ended == "closer"]
    assert calls and all(turn.text.endswith("</tool_call>") for turn in calls)
    assert {turn.info["tool_status"] for turn in calls} & {"ok", "error"}


# --- a full context


@pytest.fixture(scope="module")
def cramped(qwen3_folder: Path) -> Iterator[Actor]:
    yield from actor_of(qwen3_folder, max_context=64)


def test_a_prompt_that_does_not_fit_is_whole_truncated_and_never_played(cramped, actor):
    env = Talk(opening="long " * 40)
    (tree,) = grow(cramped, env, [1], 2)
    assert [(leaf.outcome, leaf.stop, leaf.node, leaf.score) for leaf in tree.leaves] == [
        (Outcome.TRUNCATED, "context", 0, 0.0)
    ] * 2
    _, info = env.reset(options={"task": 1})
    assert np.array_equal(tree.turns[0].tokens, actor.chat.prompt(info["messages"], info["tools"]))
    assert len(tree.turns) == 1 and len(tree.turns[0].tokens) > cramped.engine.max_context


def test_paths_that_fill_the_context_end_truncated_and_nothing_given_is_cut(cramped):
    trees = grow(cramped, Talk(), [8], 6, sampling=Sampling(max_tokens=9))
    ends = set()
    for leaf in trees[0].leaves:
        tree, last = trees[0], trees[0].turns[leaf.node]
        assert (leaf.outcome, leaf.stop) == (Outcome.TRUNCATED, "context")
        assert leaf.rewarded and leaf.score == sum(
            tree.turns[node].reward for node in tree.replies(leaf)
        )
        ends.add(last.role)
        seen = [tree.turns[node] for node in tree.path(leaf)]
        if (
            last.role == "user"
        ):  # the answer that did not fit is on the path, whole, and nothing follows it
            assert (
                sum(len(turn.tokens) for turn in seen)
                >= 64
                > sum(len(turn.tokens) for turn in seen[:-1])
            )
        else:
            assert last.ended == "context" and sum(len(turn.tokens) for turn in seen) == 64
        for turn in seen[1:]:
            if turn.role == "user":
                assert turn.text.startswith("and ")
                assert (
                    turn.tokens.tolist()[-3:] == seen[0].tokens.tolist()[-3:]
                )  # up to where the policy would speak
    assert ends == {"user", "assistant"}


# --- what is kept


def test_real_trees_survive_the_journal_to_the_bit(actor, talked, tmp_path):
    for trees in (talked, grow(actor, Talk(fails=ToolFailure("lost")))):
        write_trees(tmp_path / "trees.jsonl", trees, Origin("test/Talk-v0", {}))
        assert bits(list(read_trees(tmp_path / "trees.jsonl"))) == bits(trees)


def test_shuffled_scores_deals_the_same_scores_and_touches_nothing_else(actor):
    trees = grow(actor, Talk(fails=ToolFailure("lost")))
    dealt, again, other = (shuffled_scores(trees, key) for key in ((1, 2), (1, 2), (1, 3)))
    scores, mixed, remixed = (
        [leaf.score for tree in forest for leaf in tree.leaves if leaf.rewarded]
        for forest in (trees, dealt, other)
    )
    assert sorted(mixed) == sorted(scores) == sorted(remixed)
    assert mixed != scores and mixed != remixed and bits(dealt) == bits(again)
    for tree, before in zip(dealt, trees):
        assert tree.turns == before.turns
        for leaf, old in zip(tree.leaves, before.leaves):
            assert leaf.rewarded or isnan(leaf.score)
            assert replace(leaf, score=0.0) == replace(old, score=0.0)


def test_an_engine_that_fails_ends_the_rollout_with_its_error(actor, monkeypatch):
    async def broken(*arguments: Any) -> None:
        raise FloatingPointError("weights are broken")

    monkeypatch.setattr(WitnessSession, "sample", broken)
    env = Talk()
    with pytest.raises(FloatingPointError, match="weights are broken"):
        grow(replace(actor, engine=Witness(actor.engine)), env)
    until = time.monotonic() + 5
    while (
        sum(env.open) and time.monotonic() < until
    ):  # a fork that was under way is closed when it is made
        time.sleep(0.01)
    assert sum(env.open) == 0
