"""Calls in the format of another model: which one it is, and what to do about it. They are counted, never run."""

import re
from collections.abc import Sequence

# Each format by its name in messages, and what only its calls hold; the first one that a text holds is named.
FOREIGN = {
    "Kimi's": re.compile(r"<\|tool_calls?(?:_section)?_begin\|>"),
    "DeepSeek's": re.compile(r"<｜tool▁calls?▁begin｜>|<｜DSML｜"),
    "Mistral's": re.compile(r"\[TOOL_CALLS\]"),
    "gpt-oss's (harmony)": re.compile(r"<\|channel\|>\s*commentary\b|to=functions\.\w|<\|call\|>"),
    "GLM's": re.compile(r"<arg_key>"),
    "Llama 3.1's custom": re.compile(r"<function=[\w.-]+>\s*\{"),
    "Qwen3-Coder's": re.compile(r"<function=[\w.-]+>"),
    "Qwen2.5-Coder's (<tools>)": re.compile(r"<tools>\s*[\[{]"),
    "MiniMax's": re.compile(r"<minimax:tool_call>"),
    "Claude's": re.compile(r'<function_calls>|<invoke name="'),
    "Granite's or Phi-4's (<|tool_call|>)": re.compile(r"<\|tool_call\|>"),
    "Nemotron's": re.compile(r"<TOOLCALL>"),
    "Command R's": re.compile(r"<\|START_ACTION\|>"),
    "Gemma's (tool_code)": re.compile(r"^[ \t]*+```tool_code\b", re.MULTILINE),
    "hermes": re.compile(r"<tool_call>\s*\{"),
    "llama-json": re.compile(
        r'\{\s*"(?:type"\s*:\s*"function"\s*,\s*")?name"\s*:\s*"[\w.-]+"\s*,\s*"(?:parameters|arguments)"\s*:'
    ),
    "Llama's (<|python_tag|>)": re.compile(r"<\|python_tag\|>(?!\s*\{)"),
}
OWN = ("hermes", "llama-json", "pythonic", "tags")  # that an environment can be asked to read


def foreign_call(
    text: str, style: str, tools: Sequence[str], malformed: bool = False
) -> str | None:
    """Return the name of the foreign format in which `text`, without thoughts, writes a call; None if there is none.

    Args:
        text: A reply in which the environment's own format has no call, or none that can be read.
        style: The name of that format.
        tools: The names of the tools; a call in `pythonic` or `tags` must name one.
        malformed: Whether there is a call in the own format; then only formats are looked for that turngym does not
            have, as some of them stand between the tags of `hermes`.
    """
    for name, pattern in FOREIGN.items():
        if name != style and not (malformed and name in OWN) and pattern.search(text):
            return name
    if malformed or not tools:
        return None
    names = "|".join(map(re.escape, tools))
    if style != "pythonic" and re.search(rf"\[\s*+(?:{names})\(\s*+(?:\w++\s*+=|\))", text):
        return "pythonic"
    if style != "tags" and any(f"<{name}>" in text and f"</{name}>" in text for name in tools):
        return "tags"
    return None


def title(name: str) -> str:
    """Return how a foreign format is called in a sentence."""
    return f"the format {name}" if name in OWN else f"{name} format"


def advice(name: str, chooses: bool = True) -> str:
    """Return what to do about calls in a foreign format; `chooses`: whether the environment has the option `format`."""
    if not chooses:
        return "the environment reads only the form of calls that its prompt asks for"
    if name in OWN:
        return f"try --option format={name}"
    server = (
        "behind a URL, a server can read it (--tool-calls structured, and its own parser of calls)"
    )
    return f"turngym has no such format; {server}, else try --option format=tags, which the prompt teaches"
