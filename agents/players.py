"""Players that act by text: an expert that knows the gold, an observer, a script. Their episodes are trees too."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ..envs import StopReason, TextEnv
from ..envs.splits import begin
from ..tools.progress import track
from .engine import EngineFailure
from .trajectory import NO_TOKENS, Leaf, Tree, Turn, failed_step, root_turn, step


class ContextFull(Exception):
    """What has been said does not fit into the context of who should answer."""

    fault = "context"


@dataclass(frozen=True)
class Action:
    """An action, why the model stopped there (`end`, or `length` at its token limit), and the tokens of its answer."""

    text: str
    ended: str = ""
    tokens: int = 0


class Player(Protocol):
    """Who plays an episode."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str | Action | None:
        """Return the action for what was last observed; None to leave.

        Raises ContextFull or EngineFailure for what ends the episode, with its score so far or as a failure.
        """


class Expert:
    """Plays the environment's own gold actions: what a perfect agent would earn."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        return env.gold()[0]


class Observer:
    """Plays from what it is shown alone, by the policy that the environment offers as `expert()`, if any."""

    def __init__(self) -> None:
        self._minds: WeakKeyDictionary[TextEnv, Any] = WeakKeyDictionary()

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Return the policy's next action; every environment has a policy of its own."""
        if env not in self._minds:
            make = getattr(env, "expert", None)
            if make is None:
                raise TypeError(f"{type(env).__name__} has no expert() that plays from observations; use `expert`")
            self._minds[env] = make()
        return str(self._minds[env].act(observation))


class Script:
    """Says what is written, one text a turn, then leaves: for one episode."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = iter(texts)

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str | None:
        return next(self.texts, None)


PLAYERS: dict[str, Callable[[], Player]] = {"expert": Expert, "observer": Observer}


def play(env: TextEnv, player: Player, task: int, seed: int = 0) -> Tree:
    """Let a player play one task in a fork of `env` and return a tree of one path, without tokens.

    What the environment raises while it answers, and an `EngineFailure`, end the path as an infrastructure failure. A
    path that the player left has no leaf. What else the player raises, and a `reset` that fails, is raised.
    """
    env = env.fork()
    try:
        observation, info = begin(env, task, seed)
        tree = Tree((seed, 0, task), task, info["task_id"])
        node, score = tree.add(root_turn(observation, info, NO_TOKENS)), 0.0
        while (action := player.act(env, observation, info)) is not None:
            action = action if isinstance(action, Action) else Action(action)
            try:
                result = step(env, action.text)
            except Exception as error:
                result = failed_step({"error": f"{type(error).__name__}: {error}"})
            score += result.reward
            turn = Turn.unsampled(node, "assistant", action.text, NO_TOKENS)
            said = replace(turn, ended=action.ended, counted=action.tokens)
            node = tree.add(replace(said, reward=result.reward, info=result.info))
            if result.stop is not None:
                tree.leaves.append(Leaf.ended(node, 0, result.stop, score, result.info))
                break
            role, observation = (str(result.messages[0][name]) for name in ("role", "content"))
            node = tree.add(Turn.unsampled(node, role, observation, NO_TOKENS))
            info = {"messages": result.messages, **result.info}
    except ContextFull:
        tree.leaves.append(Leaf.ended(node, 0, StopReason.CONTEXT, score, {}))
    except EngineFailure as error:
        found = {"error": str(error), "engine": str(error.fault)}
        tree.leaves.append(Leaf.ended(node, 0, StopReason.INFRA_ERROR, score, found))
    finally:
        env.close()
    return tree


def play_all(
    env: TextEnv,
    player_of: Callable[[int, int], Player],
    episodes: Sequence[tuple[int, int]],
    on_tree: Callable[[Tree], None] = lambda tree: None,
    threads: int = 8,
    on_failure: Callable[[], None] = lambda: None,
) -> list[Tree]:
    """Play episodes, each given by its task and its seed, and return their trees in this order.

    `env` is forked for each, `player_of` returns who plays a task with a seed, and `threads` are the most at a time.
    `on_tree` is called with each tree when its episode is over, in this thread; `on_failure` where one raises, and on
    Ctrl-C: it ends those that are under way. No other begins then.
    """
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(lambda t, s: play(env, player_of(t, s), t, s), task, seed) for task, seed in episodes]
        try:
            for job in track(as_completed(jobs), "episodes", len(jobs)):
                on_tree(job.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # before those under way end: no worker may begin another
            on_failure()
            raise
    return [job.result() for job in jobs]
