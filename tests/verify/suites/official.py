"""The official checkers of the Berkeley Function-Calling Leaderboard, imported without the clients of models."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections import defaultdict
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

ABSENT = (
    "tenacity",
    "tree_sitter",
    "filelock",
    *(f"bfcl_eval.model_handler.parser.{one}_parser" for one in ("java", "js", "json", "xml")),
    "bfcl_eval.constants.model_config",
)


class _Absent(ModuleType):
    """A module whose every name is a decorator that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: lambda function: function


@cache
def utilities() -> Any:
    """Return the modules that read replies, load data and check, in one namespace."""
    kept = {name: sys.modules.get(name) for name in ABSENT}
    stubs = {name: _Absent(name) for name in ABSENT}
    vars(stubs["filelock"])["FileLock"] = lambda *args, **options: contextlib.nullcontext()
    names: defaultdict[str, SimpleNamespace] = defaultdict(
        lambda: SimpleNamespace(underscore_to_dot=False)
    )
    vars(stubs["bfcl_eval.constants.model_config"])["MODEL_CONFIG_MAPPING"] = names
    sys.modules.update(stubs)
    try:
        return SimpleNamespace(
            handler=import_module("bfcl_eval.model_handler.utils"),
            data=import_module("bfcl_eval.utils"),
            single=import_module("bfcl_eval.eval_checker.ast_eval.ast_checker"),
            turns=import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"),
            objects=import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils"),
        )
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def entries(category: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a category as the official runner prepares them, by id."""
    return {entry["id"]: entry for entry in utilities().data.load_dataset_entry(category)}


def conversation(row: dict[str, Any], gold: list[list[str]], turns: list[list[list[str]]]) -> str:
    """Return the error type of calls by turn and step, empty where they are right."""
    official = utilities()
    before = set(vars(official.objects))
    verdict = official.turns.multi_turn_checker(
        turns, gold, copy.deepcopy(row), row["id"].rsplit("_", 1)[0], "model"
    )
    for name in (
        set(vars(official.objects)) - before
    ):  # it keeps the objects by the model's and the task's name
        delattr(official.objects, name)
    return "" if verdict["valid"] else str(verdict["error_type"])


def single(category: str, functions: list[Any], gold: list[Any], reply: str) -> str:
    """Return the error type of one reply, empty where it is right."""
    official = utilities()
    try:
        calls = official.handler.default_decode_ast_prompting(reply)
    except Exception:  # whatever a reply may raise
        return "" if category == "irrelevance" else "ast_decoder:decoder_failed"
    if category == "irrelevance":
        return "" if official.data.is_empty_output(calls) else "irrelevance_error:decoder_success"
    if not official.data.is_function_calling_format_output(calls):
        return "ast_decoder:decoder_wrong_output_format"
    python = official.single.Language.PYTHON
    try:
        verdict = official.single.ast_checker(functions, calls, gold, python, category, "model")
    except Exception:  # the official runner ends here; turngym names it
        return "ast_checker:error"
    return "" if verdict["valid"] else str(verdict["error_type"])


def listed(jvm: Any, method: str) -> list[Any]:
    """Return the items of a list of the simulator of ScienceWorld."""
    found = jvm.call(method)
    return [jvm.call("get", i, target=found) for i in range(jvm.call("size", target=found))]


def served(domain: str, task: Any, script: list[Any], solo: bool) -> tuple[float, str]:
    """Return the reward of calls and words in tau2's own orchestrator, judged by its evaluator, and why it ended."""
    from turngym.envs.suites import tau2

    official = tau2._import_official()
    user = official.user_simulator.DummyUser() if solo else _customer(official)
    run = official.orchestrator.Orchestrator(
        domain, GymAgent(official, script, solo), user, official.registry.get_env_constructor(domain)(solo_mode=solo),
        task, max_steps=200, solo_mode=solo,
    ).run()  # fmt: skip
    kind = official.evaluator.EvaluationType.ALL
    reward = official.evaluator.evaluate_simulation(run, task, kind, solo, domain).reward
    return float(reward), str(run.termination_reason.value)


class GymAgent:
    """An agent that says what is written; the orchestrator lets one of this name play solo."""

    def __init__(self, official: Any, script: list[Any], solo: bool) -> None:
        self.message, self.left, self.solo = official.message, list(script), solo

    def get_init_state(self, message_history: Any = None) -> None:
        """Return no state: there is none."""

    def generate_next_message(self, message: Any, state: Any) -> tuple[Any, None]:
        """Return the next message."""
        one = self.left.pop(0) if self.left else "Nothing is left."
        if not isinstance(one, str) and one.name == "done" and self.solo:
            one = "###STOP###"
        if isinstance(one, str):
            return self.message.AssistantMessage(role="assistant", content=one), None
        call = self.message.ToolCall(
            id=f"call_{len(self.left)}", name=one.name, arguments=one.arguments
        )
        return self.message.AssistantMessage(role="assistant", tool_calls=[call]), None

    @staticmethod
    def is_stop(message: Any) -> bool:
        """Return whether a message ends the conversation."""
        return message.content is not None and "###STOP###" in message.content

    def stop(self, message: Any, state: Any) -> None:
        """Do nothing: the conversation is over."""


def _customer(official: Any) -> Any:
    from turngym.tests.verify.suites.tau2 import Customer

    class Scripted(official.user_simulator.UserSimulator):
        def generate_next_message(self, message: Any, state: Any) -> tuple[Any, Any]:
            text = Customer().answer(
                "", [message] * (1 if "How can I help" in str(message.content) else 2)
            )
            return official.message.UserMessage(role="user", content=text), state

        def stop(self, message: Any = None, state: Any = None) -> None:
            """Do nothing."""

    return Scripted(instructions="")
