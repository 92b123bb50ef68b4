"""Environments in TRL's `GRPOTrainer`: calls reach the tools, and the final answer the grader.

TRL takes an object whose public methods are the tools, and shows no text to it that calls none. So the last text of a
conversation is the environment's last action when TRL asks for the reward.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isnan
from typing import Any

from ...tools import ToolCall
from ...tools.json_schema import make_schema
from ..question.env import QuestionEnv
from ..split_episodes import begin, open_split
from ..text_env import TextEnv

ACT = make_schema(
    "act", "Take one action.", {"text": {"type": "string", "description": "the action"}}, ["text"]
)
_TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class Episodes:
    """The episodes of an environment for a `GRPOTrainer`.

        source = Episodes("turngym/MathPython-v0", difficulty=1)
        GRPOTrainer(model, source.reward, train_dataset=Dataset.from_list(source.rows(256)),
                    environment_factory=source.make)

    The tools of a question are the model's; in any other environment of several turns it has one, `act`.

    Args:
        env_id: As in `gymnasium.make`, or `module:Class`.
        split: train, valid or test.
        options: The environment's own; the format of calls is left to the model's chat template.

    Raises ValueError, TypeError where the environment cannot be made, or the split has no episode.
    """

    def __init__(self, env_id: str, split: str = "train", **options: Any) -> None:
        self._split = open_split(env_id, {**options, "split": split})
        env = self._split.env
        schemas = (
            env.toolbox.schemas
            if isinstance(env, QuestionEnv)
            else [ACT]
            if env.max_turns > 1
            else []
        )
        methods = {schema["function"]["name"]: _method(schema["function"]) for schema in schemas}
        if taken := methods.keys() & {"reset", "get_reward"}:
            raise ValueError(
                f"{env_id} has a tool named {taken.pop()!r}, which means something else in TRL; rename it"
            )
        self._kind: type[_Rollout] = type("Environment", (_Rollout,), methods)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return the first `count` episodes as rows of a data set: `prompt`, messages, and `task`, the episode.

        Raises ValueError where the split has fewer.
        """
        tasks = self._split.tasks
        if not 0 < count <= len(tasks):
            raise ValueError(f"count is {count}; the split has 1 to {len(tasks)} episodes")
        prompts = (begin(self._split.env, task, 0)[1]["messages"] for task in tasks[:count])
        return [{"prompt": prompt, "task": task} for prompt, task in zip(prompts, tasks)]

    def make(self) -> "_Rollout":
        """Return an environment for one rollout: TRL's `environment_factory`."""
        return self._kind(self._split.env.fork())

    @staticmethod
    def reward(
        completions: Sequence[Sequence[Mapping[str, Any]]], environments: Sequence[Any], **_: Any
    ) -> list[Any]:
        """Return each rollout's reward; None, which TRL leaves out, where environment or tool could not run."""
        return [
            one._finish(completion)
            for one, completion in zip(environments, completions, strict=True)
        ]


class _Rollout:
    """One rollout at a time in an environment of its own; a subclass has the tools as methods."""

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self._total = 0.0

    def reset(self, task: int, **_: Any) -> None:
        begin(self._env, task, 0)
        self._total = 0.0

    def _step(self, action: str) -> str:
        if not self._env.live:
            return "(the episode is over)"
        observation, reward, *_ = self._env.step(action)
        self._total += reward
        return observation

    def _finish(self, completion: Sequence[Mapping[str, Any]]) -> float | None:
        last = completion[-1] if completion else {}
        if last.get("role") == "assistant" and not last.get("tool_calls"):
            self._step(last["content"] or "")
        return None if isnan(self._total) else self._total


def _method(function: Mapping[str, Any]) -> Callable[..., str]:
    """Return a method that calls a tool, with the signature and docstring from which TRL makes its schema."""
    name, properties = function["name"], function["parameters"]["properties"]

    def call(self: _Rollout, **arguments: Any) -> str:
        if not isinstance(self._env, QuestionEnv):
            return self._step(arguments["text"])
        return self._step(self._env.format.render(ToolCall(name, arguments)))

    kinds = {key: _TYPES.get(str(value.get("type")), Any) for key, value in properties.items()}
    parameter = partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = set(function["parameters"].get("required", ()))
    ordered = sorted(kinds, key=lambda key: key not in needed)
    own = [
        parameter(
            key,
            annotation=kinds[key],
            **({} if key in needed else {"default": properties[key].get("default")}),
        )
        for key in ordered
    ]
    vars(call)["__signature__"] = inspect.Signature(
        [parameter("self"), *own], return_annotation=str
    )
    call.__name__, call.__annotations__ = name, {**kinds, "return": str}
    described = "\n".join(
        f"    {key}: {properties[key].get('description', key)}" for key in ordered
    )
    call.__doc__ = f"{function['description']}\n\nArgs:\n{described}\n\nReturns:\n    What the environment answers."
    return call
