"""Requests to `/chat/completions`, each sent until it is answered or has failed for good, and written down."""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from ...envs import Message
from ...tools.http.client import JsonClient, normalize_address
from ...tools.http.failures import Fault, HttpFailure, Limits, ShapeError
from ...tools.http.json_values import Node, parse, serialize
from ..cli.settings import EndpointOptions
from ..engine import EngineFailure, EngineFault, Sampling, keyed_rng
from ..journal.trees import append_sealed, read_sealed, sync_to_disk
from ..players import ContextFull
from ..trajectory import Key
from .advice import advice
from .answer import Answer
from .errors import ServerError, error_in, error_in_stream, error_page, is_stream, plain_text
from .finish import Finish, finish_of
from .gate import EndpointRefused, Gate
from .private import make_private
from .request import LEFT_OUT, request_fields
from .secret import Secret
from .thinking import Returned, outgoing

MAX_BYTES = 64 * 2**20
BACKOFF, LONGEST = (
    0.5,
    60.0,
)  # seconds: of the first pause, on average, and of the longest that is not asked for
PATIENCE = 600.0  # seconds: a server that asks for a longer pause has failed
SHOWN = 300  # characters of a server's words in a message
PASSING = (408, 409, 425, 429)  # and all from 500 on
ALWAYS = (401, 402, 404)  # what is true of every request
_FAULTS = {
    Fault.CONNECT: EngineFault.CONNECT,
    Fault.TIMEOUT: EngineFault.TIMEOUT,
    Fault.STATUS: EngineFault.STATUS,
}
_ANSWER_TOKENS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens")


@dataclass
class Usage:
    """What the answers of an evaluation took, as the server counts; `model` is its name for the model."""

    model: str = ""
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class BrokenOff(EngineFailure):
    """A chat completion that the server did not finish, or kept back: `answer` is what came of it."""

    def __init__(self, fault: EngineFault, message: str, wait: float | None, answer: Any) -> None:
        super().__init__(fault, message, wait)
        self.answer = answer


class WantsThoughts(EngineFailure):
    """A request was refused because it lacks what the model thought before; `named` is the server's word for that."""

    def __init__(self, failure: EngineFailure, named: str) -> None:
        super().__init__(failure.fault, str(failure))
        self.named = named


class Endpoint:
    """A model behind a URL, for any number of threads. Raises ValueError: a wrong option, or there is no key."""

    def __init__(
        self,
        options: EndpointOptions,
        sampling: Sampling = Sampling(),  # noqa: B008 (immutable)
        seed: int = 0,
    ) -> None:
        options.check()
        self.options, self.sampling, self.seed = options, sampling, seed
        base = normalize_address(options.base_url).removesuffix("/chat/completions")
        self.url = f"{base if httpx.URL(base).path.strip('/') else f'{base}/v1'}/chat/completions"
        self._fields = request_fields(options.request)
        self._secret = Secret(options.api_key_env)
        limits = Limits(options.timeout, 1, MAX_BYTES)
        authorization = self._secret.key and f"Bearer {self._secret.key}"
        self._client = JsonClient(self.url, authorization=authorization, limits=limits)
        self._gate, self._lock, self.usage = Gate(options.concurrency), threading.Lock(), Usage()
        self.returned = Returned.RECEIVED if options.return_reasoning == "always" else Returned.NONE
        self._thoughts = ""  # the server's name for what the model thought, where it asked for it
        self._names_reasons = False  # whether the server has said why an answer ended
        self._journal: Path | None = None
        self._answers: dict[
            Key, tuple[bytes, Answer]
        ] = {}  # of a journal, by key, with the digest of the request

    def open(self, journal: Path) -> None:
        """Write requests and answers into a file, which are not asked again. Raises ValueError: it is damaged."""
        make_private(journal)  # requests hold whatever the model was shown
        sync_to_disk(journal.parent)
        self._journal = journal
        for row in read_sealed(journal):
            if "answer" not in row:
                continue
            answer = Answer.read(Node(row["answer"]))
            self._count(answer)
            self._gate.answered()
            if "failure" not in row and self._ended(answer).answers:  # else it is asked for again
                self._answers[tuple(row["key"])] = (_digest(row["request"]), answer)
            if learned := row.get("learned"):
                self._thoughts = str(learned["named"])
                self._learn(Returned[learned["returned"]])

    def close(self) -> None:
        """End all requests; who waits for one gets `EndpointRefused`."""
        self._gate.close(f"{self.url} is closed")
        self._client.close()

    @property
    def learned(self) -> str:
        """What was learned of the server in an evaluation; "" for nothing."""
        if self.options.return_reasoning != "auto" or self.returned is Returned.NONE:
            return ""
        return f"sent back: the server refused a request without {self._thoughts}"

    def ask(
        self, key: Key, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> Answer | None:
        """Return the answer to a chat; None where the budget is spent. `key` names it: (sample, task, turn).

        Messages of the assistant may hold what the model thought, by the server's names; it is sent where the server
        wants it.

        Raises EngineFailure where there is none after all tries; ContextFull where the chat is too long for the model;
        EndpointRefused where no request would be answered.
        """
        answer = self._written_down(key, messages, tools)
        if answer is None:
            try:
                with self._gate.place():
                    answer = self._asked(key, messages, tools)
            except EndpointRefused as refused:
                self._gate.close(str(refused))
                raise
        if answer is not None and self._ended(answer) is Finish.CONTEXT:
            raise ContextFull(
                f"{self.url}: the context of the model was full within its answer ({answer.finish})"
            )
        return answer

    def _written_down(
        self, key: Key, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> Answer | None:
        """Return the answer of the journal to this request, sent with thoughts or without; None where it has none."""
        digest, answer = self._answers.pop(key, (b"", None))
        known = any(
            digest == _digest(self._request(key, messages, tools, returned))
            for returned in Returned
        )
        return answer if known else None

    def _asked(
        self, key: Key, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> Answer | None:
        """Send a request until it is answered, or has failed for good."""
        tried, budget = 0, self.options.token_budget
        returned, learned = self.returned, dict[str, Any]()
        while budget is None or self.usage.prompt_tokens + self.usage.completion_tokens < budget:
            era, request = self._gate.era, self._request(key, messages, tools, returned)
            try:
                answer = self._once(key, request, learned)
                self._gate.answered()
                self._learn(returned)
                return answer
            except (ContextFull, EndpointRefused, EngineFailure) as failure:
                self._write(key, request, **_failed(failure))
                if not isinstance(failure, EngineFailure):
                    raise
                wider = self._wider(key, messages, tools, request, failure)
                if wider is not None:
                    returned, learned = (
                        wider,
                        {"learned": {"returned": wider.name, "named": self._thoughts}},
                    )
                    continue
                self._gate.failed(failure.fault, era)
                if failure.wait is None or failure.wait > PATIENCE or tried == self.options.retries:
                    if not self.usage.requests:
                        raise EndpointRefused(str(failure)) from None
                    raise
                jitter = 0.5 + keyed_rng((self.seed, *key, tried)).random()
                self._gate.pause(max(failure.wait, min(BACKOFF * 2**tried, LONGEST) * jitter))
                tried += 1
        return None

    def _request(
        self,
        key: Key,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        returned: Returned,
    ) -> dict[str, Any]:
        sampling, sent = self.sampling, outgoing(messages, returned, self._thoughts)
        request: dict[str, Any] = {"model": self.options.model, "messages": sent}
        request |= {"tools": list(tools)} if tools else {}
        request |= {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        request |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        request |= {"seed": int(keyed_rng((self.seed, *key)).integers(2**31)), **self._fields}
        return {name: value for name, value in request.items() if value is not LEFT_OUT}

    def _wider(
        self,
        key: Key,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        sent: dict[str, Any],
        failure: EngineFailure,
    ) -> Returned | None:
        """Return the least with which a request that lacks thoughts has more of them; None where there are no more."""
        if not isinstance(failure, WantsThoughts) or self.options.return_reasoning == "never":
            return None
        self._thoughts = self._thoughts or failure.named
        held = _thoughts_in(sent)
        for returned in Returned:
            request = self._request(key, messages, tools, returned)
            if request != sent and _thoughts_in(request) > held:
                return returned
        return None

    def _learn(self, returned: Returned) -> None:
        """Send thoughts with all further requests where one was answered that held them."""
        with self._lock:
            self.returned = max(self.returned, returned)

    def _once(self, key: Key, request: dict[str, Any], learned: dict[str, Any]) -> Answer:
        """Send a request once. Raises ContextFull, EndpointRefused, EngineFailure: there is no answer of the model."""
        try:
            data = self._secret.hidden_in(self._data(request))
            if (error := error_in(data)) is not None:
                raise self._failed_with(error, request)
            answer = Answer.read(Node(data))
        except HttpFailure as failure:
            raise self._failure(failure, request) from None
        except ShapeError as error:
            malformed = HttpFailure(Fault.MALFORMED, f"it is no chat completion: {error}")
            raise self._failure(malformed, request) from None
        if not self._ended(answer).answers:
            with self._lock:
                self._count(answer)
            raise self._broken_off(answer, data)
        if (
            self.options.token_budget is not None
            and not answer.prompt_tokens + answer.completion_tokens
        ):
            raise EndpointRefused(
                f"{self.url} does not say how many tokens it used; leave out --token-budget"
            )
        with self._lock:
            before = self.usage.model
            if before and answer.model and before != answer.model:
                what = f"{self.url}: model {answer.model!r} answered, and {before!r} did before"
                fix = "let that one answer, and add --resume, or begin another evaluation"
                raise EndpointRefused(self._hidden(f"{what}; {fix}"))
            self._count(answer)
        self._write(key, request, answer=data, **learned)
        return answer

    def _data(self, request: dict[str, Any]) -> Any:
        """Return the JSON of an answer; raises `HttpFailure`, where it is none with the words of what came."""
        body = self._client.send(request).removeprefix(b"\xef\xbb\xbf")
        try:
            return parse(body)
        except ShapeError as error:
            page = body[: 2**16].decode("utf-8", "replace")
            raise HttpFailure(Fault.MALFORMED, str(error), page=page) from None

    def _ended(self, answer: Answer) -> Finish:
        """Return how an answer ended; one that holds nothing and gives no reason, where others have one, broke off."""
        self._names_reasons = self._names_reasons or bool(answer.finish)
        ended = finish_of(answer.finish, self.options.finish_reason)
        went_wrong = error_in({"error": answer.error}) is not None
        stopped_short = answer.empty and not answer.finish and self._names_reasons
        return Finish.BROKEN if ended.answers and (went_wrong or stopped_short) else ended

    def _broken_off(self, answer: Answer, data: Any) -> BrokenOff:
        """Return the failure of an answer that is not the model's own.

        What may pass is asked again. What was kept back for its content is not, and neither is what ended for an
        unknown reason: to draw until an answer pleases the server would choose among the model's answers.
        """
        ended = self._ended(answer)
        reason = (
            f"finish_reason {answer.finish!r}"
            if answer.finish
            else "an empty answer without a finish_reason"
        )
        error = error_in({"error": answer.error})
        said = f": {error.words[:SHOWN]!r}" if error else ""
        if ended is Finish.WITHHELD:
            what = f"kept its answer back ({answer.finish}){said}"
        elif ended is Finish.UNKNOWN:
            fix = f"if it means that an answer is complete, add --finish-reason {answer.finish}"
            what = (
                f"ended its answer with {reason}, which is not known to be a good end{said}; {fix}"
            )
        else:
            what = f"broke its answer off with {reason}{said}"
        fault = EngineFault.FULL if ended is Finish.FULL else EngineFault.STATUS
        passes = ended in (Finish.BROKEN, Finish.FULL)
        return BrokenOff(fault, self._hidden(f"{self.url} {what}"), 0.0 if passes else None, data)

    def _failure(self, failure: HttpFailure, request: dict[str, Any]) -> Exception:
        """Return what a request that was not answered raises, by what the server says and what that means."""
        page, what = failure.page.strip(), self._hidden(f"{self.url}: {failure.what}")
        if failure.fault is Fault.STATUS:
            return self._refusal(error_page(failure.status, page), failure, request)
        if (error := error_in_stream(page)) is not None:
            return self._failed_with(error, request)
        if is_stream(page):
            what += "; it answered with a stream; add --request stream=false"
        elif page.startswith("<") and not self.usage.requests:
            return EndpointRefused(
                f"{what}; check --model, and --base-url, which often ends in /v1"
            )
        elif page:
            what += self._hidden(f"; it says {plain_text(page)[:SHOWN]!r}")
        if failure.fault is Fault.CONNECT and not self.usage.requests:
            return EndpointRefused(f"{what}; check --base-url, and whether the server runs")
        return EngineFailure(
            _FAULTS.get(failure.fault, EngineFault.MALFORMED), what, failure.wait or 0.0
        )

    def _refusal(
        self, error: ServerError, failure: HttpFailure, request: dict[str, Any]
    ) -> Exception:
        """Return what an error with a status of its own raises."""
        long = len(failure.page) > SHOWN and error.words
        said = f"it answered {failure.status}: {error.words[:SHOWN]!r}" if long else failure.what
        what, status = self._hidden(f"{self.url}: {said}"), failure.status
        if (found := self._known(error, what, request)) is not None:
            return found
        what += self._advice(error, request)
        passes = (status in PASSING or status >= 500 or error.busy) and not error.spent
        if status in ALWAYS or error.spent or not (passes or self.usage.requests):
            return EndpointRefused(what)
        fault = EngineFault.FULL if status in (429, 503) or error.busy else EngineFault.STATUS
        return EngineFailure(fault, what, (failure.wait or 0.0) if passes else None)

    def _failed_with(self, error: ServerError, request: dict[str, Any]) -> Exception:
        """Return what an error in an answer with status 200 raises: the failure of one request, where others worked."""
        what = self._hidden(f"{self.url}: it answered with an error: {error.words[:SHOWN]!r}")
        if (found := self._known(error, what, request)) is not None:
            return found
        what += self._advice(error, request)
        passes = error.busy or error.status in PASSING or error.status >= 500 or not error.status
        passes = passes and not error.spent
        if not passes and not self.usage.requests:
            return EndpointRefused(what)
        fault = EngineFault.FULL if error.busy else EngineFault.STATUS
        return EngineFailure(fault, what, 0.0 if passes else None)

    def _known(self, error: ServerError, what: str, request: dict[str, Any]) -> Exception | None:
        """Return what an error raises that says something of the chat itself: it is too long, or lacks thoughts."""
        if error.context_full:
            if not self.usage.requests and (asked := _mostly_asked(error, request)):
                fix = f"take a smaller --max-tokens, which is {asked}: it leaves too little room for a conversation"
                return EndpointRefused(f"{what}; {fix}")
            return ContextFull(what)
        if named := error.wants_thoughts:
            failure = EngineFailure(EngineFault.STATUS, what + self._advice(error, request))
            return WantsThoughts(failure, named)
        return None

    def _advice(self, error: ServerError, request: dict[str, Any]) -> str:
        return advice(error, request, self.options.api_key_env, bool(self._secret.key))

    def _count(self, answer: Answer) -> None:
        usage = self.usage
        if self._ended(answer).answers:
            usage.model = usage.model or answer.model
        usage.requests += 1
        usage.prompt_tokens += answer.prompt_tokens
        usage.completion_tokens += answer.completion_tokens

    def _write(self, key: Key, request: dict[str, Any], **result: Any) -> None:
        if self._journal is not None:
            with self._lock:
                append_sealed(
                    self._journal, {"key": key, "request": request, **result}, synced=False
                )

    def _hidden(self, text: str) -> str:
        return self._secret.hidden(text)


def _digest(request: dict[str, Any]) -> bytes:
    return sha256(serialize(request)).digest()


def _failed(failure: ContextFull | EndpointRefused | EngineFailure) -> dict[str, Any]:
    """Return what is written down of a failure; with an answer that broke off, whose tokens count."""
    row: dict[str, Any] = {"failure": {"fault": str(failure.fault), "what": str(failure)}}
    return row | ({"answer": failure.answer} if isinstance(failure, BrokenOff) else {})


def _thoughts_in(request: dict[str, Any]) -> int:
    """Return how many members the messages of a request have, calls' own included: more of them, more thoughts."""
    messages = request["messages"]
    return sum(len(message) + sum(map(len, message.get("tool_calls", ()))) for message in messages)


def _mostly_asked(error: ServerError, request: dict[str, Any]) -> int:
    """Return the tokens that are asked for an answer where they are what does not fit, most of the room; else 0."""
    asked = next(
        (request[name] for name in _ANSWER_TOKENS if isinstance(request.get(name), int)), 0
    )
    numbers = [int(number) for number in re.findall(r"\b\d{1,12}\b", error.words)]
    named = any(name in error.words for name in _ANSWER_TOKENS)
    return asked if named and asked in numbers and 2 * asked > max(numbers) else 0
