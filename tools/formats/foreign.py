"""Detects calls in a format that the environment does not read, and advises what to do.

Such calls are counted and reported, never run.
"""

import re
from collections.abc import Sequence

# The formats by their names in messages, each with a pattern that only its calls match. If several
# match, the first counts.
CALL_PATTERNS = {
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
# The formats that turngym can read, not all of which are in `CALL_PATTERNS`.
READABLE_FORMATS = ("hermes", "llama-json", "pythonic", "tags")


def find_foreign_call(
    text: str, style: str, tools: Sequence[str], malformed: bool = False
) -> str | None:
    """Return the name of the foreign format in which a reply writes a call; None if there is none.

    Args:
        text: A reply without thoughts, in which the environment's format has no call, or a
            malformed one.
        style: The name of the environment's format.
        tools: The names of the tools; a call in `pythonic` or `tags` must name one.
        malformed: Whether the reply has a malformed call in the environment's format. Then formats
            that turngym can read do not count: some other models write their calls between the tags
            of `hermes`.
    """
    for format_name, call_pattern in CALL_PATTERNS.items():
        if format_name == style:
            continue
        if malformed and format_name in READABLE_FORMATS:
            continue
        if call_pattern.search(text):
            return format_name
    if malformed or not tools:
        return None
    # Prose may look like a call of these two formats, so the name of a tool is required.
    if style != "pythonic":
        tool_names = "|".join(re.escape(tool) for tool in tools)
        pythonic_call = rf"\[\s*+(?:{tool_names})\(\s*+(?:\w++\s*+=|\))"
        if re.search(pythonic_call, text):
            return "pythonic"
    if style != "tags":
        for tool in tools:
            if f"<{tool}>" in text and f"</{tool}>" in text:
                return "tags"
    return None


def describe_format(name: str) -> str:
    """Return a format's name for a sentence: "the format hermes", "Kimi's format"."""
    return f"the format {name}" if name in READABLE_FORMATS else f"{name} format"


def advise_on_format(name: str, has_format_option: bool = True) -> str:
    """Return what a user can do about calls in a foreign format.

    Args:
        name: The name of the format, as `find_foreign_call` returns it.
        has_format_option: Whether the environment has the option `format`.
    """
    if not has_format_option:
        return "the environment reads only the form of calls that its prompt asks for"
    if name in READABLE_FORMATS:
        return f"try --option format={name}"
    return (
        "turngym has no such format; behind a URL, a server can read it (--tool-calls structured, "
        "and its own parser of calls), else try --option format=tags, which the prompt teaches"
    )
