"""Environments in TRL's `GRPOTrainer`: calls reach the tools, the final answer the grader.

TRL takes an object whose public methods are the tools. It does not pass a reply without a tool call
to that object. So the last reply of a conversation becomes the environment's last action when TRL
asks for the reward.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any

from ...tools import ToolCall
from ...tools.json_schema import make_schema
from ..question.env import QuestionEnv
from ..split_episodes import begin, open_split
from ..text_env import TextEnv

# The only tool in an environment whose actions are free text.
ACT = make_schema(
    "act", "Take one action.", {"text": {"type": "string", "description": "the action"}}, ["text"]
)
# The annotations for the types of JSON schemas. TRL makes its own schema from annotations.
_PYTHON_TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_RESERVED_METHODS = frozenset({"reset", "get_reward"})  # TRL calls them itself


class Episodes:
    """The episodes of an environment for a `GRPOTrainer`.

        source = Episodes("turngym/MathPython-v0", difficulty=1)
        GRPOTrainer(model, source.reward, train_dataset=Dataset.from_list(source.rows(256)),
                    environment_factory=source.make)

    In a `QuestionEnv` the model gets the environment's tools; in any other environment of several
    turns it gets one tool, `act`, which takes the action as text.

    Args:
        env_id: As in `gymnasium.make`, or `module:Class`.
        split: train, valid or test.
        options: Options of the environment. The model's chat template decides how tool calls are
            written.

    Raises:
        ValueError, TypeError: The environment cannot be made, the split has no episode, or a tool
            has the name of a method that TRL calls itself.
    """

    def __init__(self, env_id: str, split: str = "train", **options: Any) -> None:
        self._split = open_split(env_id, {**options, "split": split})
        env = self._split.env
        if isinstance(env, QuestionEnv):
            schemas = env.toolbox.schemas
        elif env.max_turns > 1:
            schemas = [ACT]
        else:
            schemas = []
        functions = [schema["function"] for schema in schemas]
        methods = {function["name"]: _make_tool_method(function) for function in functions}
        for name in methods:
            if name in _RESERVED_METHODS:
                raise ValueError(
                    f"{env_id} has a tool named {name!r}, which means something else in TRL; "
                    "rename it"
                )
        self._rollout_class: type[_Rollout] = type("Environment", (_Rollout,), methods)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return the first `count` episodes of the split as rows of a data set.

        Returns:
            Dicts with `prompt`, the messages up to the model's first turn, and `task`, the number
            of the episode, which TRL passes to `reset`.

        Raises:
            ValueError: The split has fewer episodes, or `count` is not above 0.
        """
        tasks = self._split.tasks
        if not 0 < count <= len(tasks):
            raise ValueError(f"count is {count}; the split has 1 to {len(tasks)} episodes")
        rows = []
        for task in tasks[:count]:
            _, info = begin(self._split.env, task, 0)
            rows.append({"prompt": info["messages"], "task": task})
        return rows

    def make(self) -> "_Rollout":
        """Return a new environment for rollouts: TRL's `environment_factory`."""
        return self._rollout_class(self._split.env.fork())

    @staticmethod
    def reward(
        completions: Sequence[Sequence[Mapping[str, Any]]], environments: Sequence[Any], **_: Any
    ) -> list[Any]:
        """Return the reward of each rollout: TRL's reward function.

        Args:
            completions: The messages of each rollout behind its prompt.
            environments: The environment of each rollout, made by `make`.

        Returns:
            A number for each rollout; None, which TRL ignores, if its environment or one of its
            tools could not run.
        """
        return [
            environment._finish(completion)
            for environment, completion in zip(environments, completions, strict=True)
        ]


class _Rollout:
    """The object that TRL uses for a rollout; a subclass adds the tools as methods.

    TRL takes each public method for a tool, so that all others begin with an underscore.
    """

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self._return = 0.0  # the sum of rewards so far; NaN if a turn failed

    def reset(self, task: int, **_: Any) -> None:
        """Begin the episode of a row of the data set; TRL passes all columns of the row."""
        begin(self._env, task, 0)
        self._return = 0.0

    def _step(self, action: str) -> str:
        """Take an action and return the observation; count its reward."""
        if not self._env.live:
            return "(the episode is over)"
        observation, reward, *_ = self._env.step(action)
        self._return += reward
        return observation

    def _finish(self, completion: Sequence[Mapping[str, Any]]) -> float | None:
        """Take the final reply as the last action, and return the sum of rewards.

        If the conversation was cut, its last message is the result of a tool, or a reply with a
        tool call. Both are no final reply: TRL has called the tool already.

        Args:
            completion: The messages behind the prompt.

        Returns:
            The sum of rewards; None if a turn failed.
        """
        last_message = completion[-1] if completion else {}
        is_reply = last_message.get("role") == "assistant"
        if is_reply and not last_message.get("tool_calls"):
            self._step(last_message["content"] or "")
        return None if isnan(self._return) else self._return


def _make_tool_method(function: Mapping[str, Any]) -> Callable[..., str]:
    """Return a method of `_Rollout` that calls a tool.

    TRL makes the tool's schema from the method's signature and docstring, so both are made here
    from the environment's schema.

    Args:
        function: The `function` part of a tool's JSON schema: name, description, parameters.
    """
    name = function["name"]
    properties = function["parameters"]["properties"]
    required = set(function["parameters"].get("required", ()))

    def call_tool(self: _Rollout, **arguments: Any) -> str:
        if not isinstance(self._env, QuestionEnv):
            return self._step(arguments["text"])
        return self._step(self._env.format.render(ToolCall(name, arguments)))

    # TRL lists the parameters in the order of the annotations, which is that of the schema.
    annotations = {
        key: _PYTHON_TYPES.get(str(schema.get("type")), Any) for key, schema in properties.items()
    }
    # In the signature, Python demands that required parameters come first.
    keys_in_signature = sorted(properties, key=lambda key: key not in required)
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    argument_lines = []
    for key in keys_in_signature:
        schema = properties[key]
        default = inspect.Parameter.empty if key in required else schema.get("default")
        parameter = inspect.Parameter(
            key,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=annotations[key],
            default=default,
        )
        parameters.append(parameter)
        argument_lines.append(f"    {key}: {schema.get('description', key)}")
    argument_section = "\n".join(argument_lines)

    call_tool.__name__ = name
    call_tool.__annotations__ = {**annotations, "return": str}
    vars(call_tool)["__signature__"] = inspect.Signature(parameters, return_annotation=str)
    call_tool.__doc__ = (
        f"{function['description']}\n\nArgs:\n{argument_section}\n\n"
        "Returns:\n    What the environment answers."
    )
    return call_tool
