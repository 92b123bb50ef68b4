"""A model behind OpenAI's `/chat/completions`, without torch: requests that are written down, and an episode as a chat.

A request that has failed for good is an `EngineFailure`, never an answer. What would meet every request alike is
`EndpointRefused`: a wrong key, a wrong address, and whatever the first request meets, which is sent alone. The key is
sent in a header and kept out of everything else: what a server says is searched for it first.
"""

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import httpx

from ..envs import Message, TextEnv
from ..envs.question import QuestionEnv
from ..envs.registry import named_values
from ..tools import Format, ToolCall
from ..tools.formats.core import load_json
from ..tools.http import Fault, HttpFailure, Limits, Node, ShapeError, serialize
from ..tools.http.client import JsonClient, address
from .engine import EngineFailure, EngineFault, Sampling, keyed_rng
from .journal import append_sealed, read_sealed
from .players import Action, ContextFull
from .settings import API_KEY, EndpointOptions
from .trajectory import Key

MAX_BYTES = 64 * 2**20
BACKOFF, LONGEST = 0.5, 60.0  # seconds: of the first pause, on average, and of the longest that is not asked for
PATIENCE = 600.0  # seconds: a server that asks for a longer pause has failed
SECRET = 12  # characters; a shorter key is a placeholder such as EMPTY, which an answer may well hold
PASSING = (408, 409, 425, 429)  # and all from 500 on
ALWAYS = (401, 402, 404)  # what is true of every request
_TOO_LONG = r"(?i)context[ _](length|size|window)|maximum (model length|number of tokens)|prompt is too long"
_FAULTS = {Fault.CONNECT: EngineFault.CONNECT, Fault.TIMEOUT: EngineFault.TIMEOUT, Fault.STATUS: EngineFault.STATUS}


@dataclass(frozen=True)
class Call:
    """A structured tool call; `arguments` is the JSON text, well-formed or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """What a model said. Of several calls the first one counts, as in text."""

    content: str
    call: Call | None
    finish: str  # stop, length, tool_calls or content_filter
    model: str  # as the server names it
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def read(cls, root: Node) -> Self:
        """Return what an answer of `/chat/completions` holds; raises `ShapeError` where it is none."""
        choices = root["choices"].array()
        if not choices:
            raise ShapeError("choices is empty")
        message, usage = choices[0]["message"], root.object().get("usage")
        counts = [isinstance(usage, dict) and usage.get(f"{name}_tokens") for name in ("prompt", "completion")]
        calls = message["tool_calls"].array() if message.object().get("tool_calls") else []
        return cls(
            _text(message),
            _call(calls[0]) if calls else None,
            str(choices[0].object().get("finish_reason") or ""),
            str(root.object().get("model") or ""),
            *(count if type(count) is int else 0 for count in counts),
        )


def _text(message: Node) -> str:
    """Return what was said: the content, as a text or in parts, or the words of a refusal; thoughts are left out."""
    content = message.object().get("content")
    if isinstance(content, list):
        return "".join(part["text"].string() for part in message["content"].array() if "text" in part)
    name = "content" if content is not None else "refusal"
    return message[name].string() if message.object().get(name) is not None else ""


def _call(call: Node) -> Call:
    function = call["function"]
    arguments = function.object().get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return Call(str(call.object().get("id") or ""), function["name"].string(), Node(text).string())


def _digest(request: dict[str, Any]) -> bytes:
    return sha256(serialize(request)).digest()


@dataclass
class Usage:
    """What the answers of an evaluation took, as the server counts; `model` is its name for the model."""

    model: str = ""
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class EndpointRefused(ValueError):
    """The server is none, or refuses what every request asks for."""

    fault = "refused"


class Gate:
    """Lets so many requests through at a time: one until the first is answered, then `most`.

    A server that is full halves the number, once for all that were under way; as many answers as there may be requests
    add one again. A request that waits for its next try keeps its place.
    """

    def __init__(self, most: int) -> None:
        self.limit, self.era = 1, 0  # an era ends where the limit is halved
        self._most, self._out, self._good, self._closed = most, 0, 0, ""
        self._changed = threading.Condition()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place, and have it inside; raises `EndpointRefused` where the gate is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed != "" or self._out < self.limit)
            if self._closed:
                raise EndpointRefused(self._closed)
            self._out += 1
        try:
            yield
        finally:
            with self._changed:
                self._out -= 1
                self._changed.notify_all()

    def answered(self) -> None:
        with self._changed:
            self._good += 1
            if self.era == 0:
                self.limit, self._good, self.era = self._most, 0, 1
            elif self._good >= self.limit < self._most:
                self.limit, self._good = self.limit + 1, 0
            self._changed.notify_all()

    def failed(self, fault: EngineFault, era: int) -> None:
        """Count a failure of a request that was sent in `era`."""
        with self._changed:
            if fault in (EngineFault.FULL, EngineFault.TIMEOUT) and 0 < era == self.era:
                self.limit, self._good, self.era = max(self.limit // 2, 1), 0, era + 1

    def pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._closed), seconds)

    def close(self, why: str) -> None:
        """Let nobody through any more; all get the reason of the first call."""
        with self._changed:
            self._closed = self._closed or why
            self._changed.notify_all()


class Endpoint:
    """A model behind a URL, for any number of threads. Raises ValueError: a wrong option, or there is no key."""

    def __init__(self, options: EndpointOptions, sampling: Sampling = Sampling(), seed: int = 0) -> None:  # noqa: B008
        options.check()
        self.options, self.sampling, self.seed = options, sampling, seed
        base = address(options.base_url).removesuffix("/chat/completions")
        self.url = f"{base if httpx.URL(base).path.strip('/') else f'{base}/v1'}/chat/completions"
        self._fields = named_values("request", options.request)
        self._key = _key(options.api_key_env)
        limits = Limits(options.timeout, 1, MAX_BYTES)
        self._client = JsonClient(self.url, authorization=self._key and f"Bearer {self._key}", limits=limits)
        self._gate, self._lock, self.usage = Gate(options.concurrency), threading.Lock(), Usage()
        self._journal: Path | None = None
        self._answers: dict[Key, tuple[bytes, Answer]] = {}  # of a journal, by key, with the digest of the request

    def open(self, journal: Path) -> None:
        """Write requests and answers into a file, which are not asked again. Raises ValueError: it is damaged."""
        self._journal = journal
        for row in read_sealed(journal):
            if "answer" in row:
                answer = Answer.read(Node(row["answer"]))
                self._count(answer)
                self._gate.answered()
                self._answers[tuple(row["key"])] = (_digest(row["request"]), answer)

    def close(self) -> None:
        """End all requests; who waits for one gets `EndpointRefused`."""
        self._gate.close(f"{self.url} is closed")
        self._client.close()

    def ask(self, key: Key, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> Answer | None:
        """Return the answer to a chat; None where the budget is spent. `key` names it: (sample, task, turn).

        Raises EngineFailure where there is none after all tries; ContextFull where the chat is too long for the model;
        EndpointRefused where no request would be answered.
        """
        request = self._request(key, messages, tools)
        digest, answer = self._answers.pop(key, (b"", None))
        if answer is not None and digest == _digest(request):
            return answer
        try:
            with self._gate.place():
                return self._asked(key, request)
        except EndpointRefused as refused:
            self._gate.close(str(refused))
            raise

    def _asked(self, key: Key, request: dict[str, Any]) -> Answer | None:
        """Send a request until it is answered, or has failed for good."""
        tried, budget = 0, self.options.token_budget
        while budget is None or self.usage.prompt_tokens + self.usage.completion_tokens < budget:
            era = self._gate.era
            try:
                answer = self._once(key, request)
                self._gate.answered()
                return answer
            except (ContextFull, EndpointRefused, EngineFailure) as failure:
                self._write(key, request, failure={"fault": str(failure.fault), "what": str(failure)})
                if not isinstance(failure, EngineFailure):
                    raise
                self._gate.failed(failure.fault, era)
                if failure.wait is None or failure.wait > PATIENCE or tried == self.options.retries:
                    if not self.usage.requests:
                        raise EndpointRefused(str(failure)) from None
                    raise
                jitter = 0.5 + keyed_rng((self.seed, *key, tried)).random()
                self._gate.pause(max(failure.wait, min(BACKOFF * 2**tried, LONGEST) * jitter))
                tried += 1
        return None

    def _request(self, key: Key, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        sampling = self.sampling
        request: dict[str, Any] = {"model": self.options.model, "messages": list(messages)}
        request |= {"tools": list(tools)} if tools else {}
        request |= {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        request |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        request |= {"seed": int(keyed_rng((self.seed, *key)).integers(2**31)), **self._fields}
        return {name: value for name, value in request.items() if value != "none"}

    def _once(self, key: Key, request: dict[str, Any]) -> Answer:
        try:
            found = json.dumps(self._client.post(request).value)
            data = json.loads(found.replace(self._key, "…") if len(self._key) >= SECRET else found)
            answer = Answer.read(Node(data))
        except HttpFailure as failure:
            raise self._failure(failure, "tools" in request) from None
        except ShapeError as error:
            raise self._failure(HttpFailure(Fault.MALFORMED, f"it is no chat completion: {error}"), False) from None
        if self.options.token_budget is not None and not answer.prompt_tokens + answer.completion_tokens:
            raise EndpointRefused(f"{self.url} does not say how many tokens it used; leave out --token-budget")
        with self._lock:
            if (before := self.usage.model) and before != answer.model:
                what = f"{self.url}: model {answer.model!r} answered, and {before!r} did before"
                fix = "let that one answer, and add --resume, or begin another evaluation"
                raise EndpointRefused(self._hidden(f"{what}; {fix}"))
            self._count(answer)
        self._write(key, request, answer=data)
        return answer

    def _failure(self, failure: HttpFailure, tools: bool) -> Exception:
        what, status = self._hidden(f"{self.url}: {failure.what}"), failure.status
        if 400 <= status < 500 and re.search(_TOO_LONG, what):
            return ContextFull(what)
        page = failure.fault is Fault.MALFORMED and re.search(r"in b['\"](\\[nrt]|\s)*<", what)
        spent = "insufficient_quota" in what
        passes = (status in PASSING or status >= 500 or not status) and not spent
        down = failure.fault is Fault.CONNECT or not passes
        if status in ALWAYS or spent or page or (down and not self.usage.requests):
            return EndpointRefused(what + self._advice(status, failure.fault, tools, bool(page)))
        fault = EngineFault.FULL if status in (429, 503) else _FAULTS.get(failure.fault, EngineFault.MALFORMED)
        return EngineFailure(fault, what, (failure.wait or 0.0) if passes else None)

    def _advice(self, status: int, fault: Fault, tools: bool, page: bool) -> str:
        name = self.options.api_key_env
        if status in (401, 403):
            lack = "" if self._key else ", which is not set"
            return f"; it wants a key in the environment variable {name}{lack}; --api-key-env names another one"
        if status in (404, 405) or page:
            return "; check --model, and --base-url, which often ends in /v1"
        if fault is Fault.CONNECT:
            return "; check --base-url, and whether the server runs"
        if tools and status:
            start = "start it with them (vLLM: --enable-auto-tool-choice --tool-call-parser NAME)"
            return f"; if it takes no tools, {start}, or add --tool-calls text"
        return "; fields of requests are changed by --request NAME=VALUE, and left out by NAME=none" if status else ""

    def _count(self, answer: Answer) -> None:
        usage = self.usage
        usage.model, usage.requests = usage.model or answer.model, usage.requests + 1
        usage.prompt_tokens += answer.prompt_tokens
        usage.completion_tokens += answer.completion_tokens

    def _write(self, key: Key, request: dict[str, Any], **result: Any) -> None:
        if self._journal is not None:
            with self._lock:
                append_sealed(self._journal, {"key": key, "request": request, **result}, synced=False)

    def _hidden(self, text: str) -> str:
        """Return `text` without the key, also without its beginning, where the text was cut."""
        for length in range(len(self._key), min(len(self._key), 8) - 1, -1) if self._key else ():
            text = text.replace(self._key[:length], "…")
        return text


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key and variable != API_KEY:
        raise ValueError(f"--api-key-env: the environment variable {variable} is not set or empty")
    if not re.fullmatch(r"[!#-\[\]-~]*", key):
        raise ValueError(f"the environment variable {variable} holds no key: it has blanks, quotes or other characters")
    return key


class EndpointPlayer:
    """Plays one episode: `task` and `sample` name it. The player of `turngym eval --model NAME --base-url URL`.

    A structured call is played as the text of its format, behind what was said with it. The model gets it back as a
    call, with what the environment answered as the result. Thoughts that a server returns apart are not sent back.
    """

    def __init__(self, endpoint: Endpoint, task: int, sample: int = 0) -> None:
        self.endpoint, self.key = endpoint, (sample, task)
        self.messages, self.tools = list[Message](), list[dict[str, Any]]()
        self._turn, self._call = 0, ""  # the id of the call that is to be answered

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> Action | None:
        """Return what the model says; None where the token budget is spent. Raises as `Endpoint.ask`."""
        if not self._turn and self.endpoint.options.tool_calls == "structured" and isinstance(env, QuestionEnv):
            self.tools = info["tools"]
        self.messages += map(self._heard, info["messages"])
        answer = self.endpoint.ask((*self.key, self._turn), self.messages, self.tools)
        if answer is None:
            return None
        if answer.finish == "content_filter":
            raise EngineFailure(EngineFault.STATUS, f"{self.endpoint.url} kept its answer back (content_filter)")
        self._turn += 1
        text = self._spoken(env, answer)
        return Action(text, "length" if answer.finish == "length" else "end", answer.completion_tokens)

    def _heard(self, message: Message) -> Message:
        """Return what the environment says as the chat needs it: an answer to a call names the call."""
        call, self._call = self._call, ""
        if call:
            return {"role": "tool", "tool_call_id": call, "content": message["content"]}
        role = "user" if message["role"] == "tool" else message["role"]
        return {"role": role, "content": message["content"]}

    def _spoken(self, env: TextEnv, answer: Answer) -> str:
        if answer.call is None or not (self.tools and isinstance(env, QuestionEnv)):
            self.messages.append({"role": "assistant", "content": answer.content})
            return answer.content
        self._call = answer.call.id or f"call_{self._turn}"
        text, arguments = spell(env.format, answer.call)
        called = {"id": self._call, "type": "function", "function": {"name": answer.call.name, "arguments": arguments}}
        self.messages.append({"role": "assistant", "content": answer.content or None, "tool_calls": [called]})
        names = tuple(env.toolbox.tools)
        whole, alone = (env.format.parse(each, names) for each in (f"{answer.content}\n{text}", text))
        same = (whole.call, whole.error) == (alone.call, alone.error)
        return f"{answer.content}\n{text}" if answer.content and same else text


def spell(style: Format, call: Call) -> tuple[str, str]:
    """Return the text of a structured call, and its arguments as a server takes them back.

    Those that are no JSON object stand in the text as they are, for the environment to say what is wrong with them; a
    server, which refuses them, gets an object that holds them.
    """
    try:
        arguments = load_json(call.arguments or "{}", "the text")
        if not isinstance(arguments, dict):
            raise ValueError("it is no object")
        return style.render(ToolCall(call.name, arguments)), call.arguments or "{}"
    except ValueError:
        before, _, after = style.render(ToolCall(call.name, {})).rpartition("{}")
        wrong = json.dumps(call.arguments).replace("</", "<\\/")
        return f"{before}{wrong}{after}", json.dumps({"malformed": call.arguments})
