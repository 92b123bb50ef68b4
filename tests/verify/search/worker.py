"""A fresh process that plays hostile completions one after the other and tells what it saw of each.

What it writes, runs and connects to is heard through audit events.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from turngym.envs.qa import QAGrader, QATask, SearchEnv
from turngym.envs.qa.make import load_questions
from turngym.envs.rows import SourceOptions
from turngym.envs.tasks import ListTasks
from turngym.tests.support.faults import FAULTS, Answer, FaultServer, Request, found, whole
from turngym.tests.verify.grader.predicates import Seen
from turngym.tests.verify.search.predicates import Searched
from turngym.tools import Search, Tool, get_format
from turngym.tools.search.remote import SearchR1
from turngym.tools.search.retriever import join_contents
from turngym.tools.search.visit import Visit
from turngym.tools.subprocesses.messages import serve

HOST = "{{HOST}}"  # in a completion: the address of a server that answers badly
PAGES = {  # what is visited there in place of a page that the server does not know, by a part of its name
    "metadata|internal|private|local|file": "redirect/http%3A%2F%2F169.254.169.254%2F",
    "redirect|loop|hop": "loop",
    "slow|drip": "drip-body",
    "big|huge|large|endless|bomb": "endless-body",
}
QUESTION = "Which city is the capital of France?"
TEXT = "Its largest city has been the seat of government for long."
PASSAGE = {"id": "1", "contents": join_contents("France", TEXT)}
_FORMATS = {
    "<tool_call>": "hermes",
    "```": "fenced",
    "<|python_tag|>": "llama-json",
}  # by a mark; tags else
_RUNS = frozenset(
    ["exec", "compile", "os.system", "os.exec", "os.spawn", "os.posix_spawn", "subprocess.Popen"]
)
_WRITES = frozenset(
    ["os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"]
)


def answer(request: Request) -> Answer:
    """Find the one passage."""
    return whole(found(request, PASSAGE))


class Server:
    """Answers requests in the fresh process; `index` is searched, `pages` are visited."""

    def __init__(self, index: FaultServer, pages: FaultServer) -> None:
        self.index, self.pages = index, pages
        self.heard: dict[str, list[str]] | None = None  # filled while it is a dict
        self.own = {index.host, pages.host}

    def handle(self, request: dict[str, Any]) -> Any:
        """Answer one request: a completion and the answers that are right."""
        text = re.sub(rf"(?<={re.escape(HOST)}/)[^<\s\"]*", _page, request["text"])
        return asdict(self.see(text.replace(HOST, self.pages.host), request["golds"]))

    def see(self, text: str, golds: Sequence[str]) -> Searched:
        """Play a completion as the first turn of an episode, and once more cut behind its first call."""
        refused = _refused(golds)
        tracemalloc.start()
        self.heard, began = {"runs": [], "writes": [], "connects": []}, time.monotonic()
        try:
            seen = self._play(text, golds)
        except Exception as error:  # whatever comes out, it is what was seen
            seen = Searched(
                Seen(raised=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
            )
        heard, self.heard = self.heard, None
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        one = replace(
            seen.seen,
            executed=heard["runs"],
            files=heard["writes"],
            refused=refused,
            next_ok=self._next_ok(),
        )
        away = [place for place in heard["connects"] if place not in self.own]
        return replace(seen, seen=one, away=away, memory=memory)

    def _play(self, text: str, golds: Sequence[str]) -> Searched:
        name = next((name for mark, name in _FORMATS.items() if mark in text), "tags")
        parsed = get_format(name).parse(text, ("search", "visit"))
        asked, visited = len(self.index.requests), len(self.pages.requests)
        whole, told = self._episode(name, text, golds)
        requests, hops = self.index.requests[asked:], len(self.pages.requests) - visited
        _, again = self._episode(name, parsed.text, golds)
        cut = parsed.call is not None and told == again
        calls = [query for request in requests for query in request.queries]
        fields = max((request.fields for request in requests), key=len, default=())
        seen = replace(whole.seen, cut=cut, calls=len(calls), control=control(text, told[0]))
        return replace(whole, seen=seen, queries=calls, fields=fields, hops=hops)

    def _episode(
        self, format: str, text: str, golds: Sequence[str]
    ) -> tuple[Searched, tuple[Any, ...]]:
        env = self._env(format, golds)
        try:
            env.reset(seed=0)
            limits = _limits(env)
            began = time.monotonic()
            told, reward, done, cut_short, info = env.step(text)
            seconds = time.monotonic() - began
            if info.get("outcome") in ("tool_error", "infra_error"):
                raise RuntimeError(f"{info['outcome']}: {info.get('error')}")
            status = info.get("tool_status")
            seen = Seen(
                score=reward,
                seconds=seconds,
                most_calls=env.max_turns,
                turns=env.turn if done or cut_short else None,
                error=status not in (None, "ok"),
                limits=limits == _limits(env),
            )
            gold = any(gold and gold in told.replace(text, "") for gold in golds)
            visit = status if info.get("tool") == "visit" else None
            return Searched(seen, status=visit, shown=len(told.encode()), gold=gold), (
                told,
                reward,
                status,
            )
        finally:
            env.close()

    def _env(self, format: str, golds: Sequence[str]) -> SearchEnv:
        task = QATask("row", QUESTION, golds[0], aliases=tuple(golds[1:]))
        tools: list[Tool] = [Search(SearchR1(self.index.url)), Visit(allow=[self.pages.host])]
        return SearchEnv(ListTasks([task]), tools, format=format)

    def _next_ok(self) -> bool:
        """Whether an answer is graded and a search answered as ever."""
        said = ("<answer>the Paris.</answer>", "<answer>Lyon</answer>", "<search>France</search>")
        try:
            told = [self._episode("tags", text, ["Paris"])[1] for text in said]
        except Exception:  # whatever it is, it is not as ever
            return False
        return [reward for _, reward, _ in told] == [1.0, 0.0, 0.0] and TEXT in told[2][0]

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Keep what this process does while it plays: a hook for audit events."""
        if self.heard is None:
            return
        if event == "socket.connect":
            self.heard["connects"].append(":".join(map(str, args[1][:2])))
        elif event in _RUNS and not _loads(event, args):
            self.heard["runs"].append(f"{event} {args!r:.80}")
        elif event in _WRITES or (event == "open" and set(str(args[1])) & set("wax+")):
            self.heard["writes"].append(f"{event} {args!r:.80}")


def _loads(event: str, args: tuple[Any, ...]) -> bool:
    """Whether a module is loaded, from its file or by Python itself."""
    name = {"exec": lambda: args[0].co_filename, "compile": lambda: args[1]}.get(
        event, lambda: None
    )()
    return isinstance(name, str) and (name.startswith("<frozen ") or Path(name).is_file())


def _page(match: re.Match[str]) -> str:
    """Return the name of a page that the server knows."""
    if match[0].partition("/")[0] in FAULTS:
        return match[0]
    return next((page for part, page in PAGES.items() if re.search(part, match[0])), match[0])


def _limits(env: SearchEnv) -> tuple[Any, ...]:
    search = env.toolbox.tools["search"]
    assert isinstance(search, Search)
    return env.max_turns, env.toolbox.timeout, search.k, search.max_query, search.passage_chars


def _refused(golds: Sequence[str]) -> bool:
    """Whether the grader and the loader of files both refuse a gold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.jsonl"
        path.write_text(json.dumps({"question": QUESTION, "answers": list(golds)}))
        checks = (
            lambda: [QAGrader.check_gold(gold) for gold in golds],
            lambda: load_questions(path, SourceOptions()),
        )
        return all(map(_raises, checks))


def _raises(check: Any) -> bool:
    try:
        check()
    except ValueError:
        return True
    return False


def control(*texts: str) -> int:
    """Return how many control tokens texts are encoded with by tokenizers that know each of those they spell."""
    from turngym.agents.chat.chat import Encoder
    from turngym.agents.chat.rendering import MarkedText
    from turngym.tests.verify.grader.control_tokens import tokenizers

    marked = [
        MarkedText(text.encode("utf-8", "replace").decode()) for text in texts
    ]  # UTF-8 carries no lone surrogates
    encoders = [Encoder(tokenizer) for tokenizer in tokenizers(marked)]
    return sum(
        int(i) in encoder.control
        for encoder in encoders
        for text in marked
        for i in encoder.encode(text)
    )


def main() -> None:
    """Answer requests until there are no more."""
    with FaultServer(answer) as index, FaultServer() as pages:
        server = Server(index, pages)
        server.handle(
            {"text": f"<visit>http://{HOST}/page</visit>", "golds": [QUESTION]}
        )  # loads all that is needed
        sys.addaudithook(server.hear)
        serve(server.handle)


if __name__ == "__main__":
    main()
