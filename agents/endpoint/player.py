"""An episode as a chat with a model behind a URL: what it says as text, and calls as the server takes them back."""

import json
from collections.abc import Mapping
from typing import Any

from ...envs import Message, TextEnv
from ...envs.question.env import QuestionEnv
from ...tools import Format, ToolCall
from ...tools.formats.json_call import load_json
from ..players import Action
from .answer import Answer, Call
from .client import Endpoint
from .finish import Finish, finish_of


class EndpointPlayer:
    """Plays one episode: `task` and `sample` name it. The player of `turngym eval --model NAME --base-url URL`.

    A structured call is played as the text of its format, behind what was said with it. The model gets it back as a
    call, with what the environment answered as the result. Thoughts that a server returns apart stay with the message;
    whether they are sent back is the endpoint's to decide.
    """

    def __init__(self, endpoint: Endpoint, task: int, sample: int = 0) -> None:
        self.endpoint, self.key = endpoint, (sample, task)
        self.messages, self.tools = list[Message](), list[dict[str, Any]]()
        self._turn, self._call = 0, ""  # the id of the call that is to be answered

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> Action | None:
        """Return what the model says; None where the token budget is spent. Raises as `Endpoint.ask`."""
        if (
            not self._turn
            and self.endpoint.options.tool_calls == "structured"
            and isinstance(env, QuestionEnv)
        ):
            self.tools = info["tools"]
        self.messages += map(self._heard, info["messages"])
        answer = self.endpoint.ask((*self.key, self._turn), self.messages, self.tools)
        if answer is None:
            return None
        self._turn += 1
        text = self._spoken(env, answer)
        cut = finish_of(answer.finish) is Finish.CUT
        return Action(text, "length" if cut else "end", answer.completion_tokens)

    def _heard(self, message: Message) -> Message:
        """Return what the environment says as the chat needs it: an answer to a call names the call."""
        call, self._call = self._call, ""
        if call:
            return {"role": "tool", "tool_call_id": call, "content": message["content"]}
        role = "user" if message["role"] == "tool" else message["role"]
        return {"role": role, "content": message["content"]}

    def _spoken(self, env: TextEnv, answer: Answer) -> str:
        if answer.call is None or not (self.tools and isinstance(env, QuestionEnv)):
            self.messages.append(
                {"role": "assistant", "content": answer.content, **answer.thoughts}
            )
            return answer.content
        self._call = answer.call.id or f"call_{self._turn}"
        text, arguments = spell(env.format, answer.call)
        function = {"name": answer.call.name, "arguments": arguments}
        called = {"id": self._call, "type": "function", "function": function, **answer.call.extra}
        said = {"role": "assistant", "content": answer.content or None, "tool_calls": [called]}
        self.messages.append(said | dict(answer.thoughts))
        names = tuple(env.toolbox.tools)
        whole, alone = (
            env.format.parse(each, names) for each in (f"{answer.content}\n{text}", text)
        )
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
