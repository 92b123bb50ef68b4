"""What a user can do about an error, by what the server named: a key, a quota, the model, a field of the request."""

import re
from typing import Any

from .errors import THOUGHTS, ServerError

_UNKNOWN_MODEL = (
    r"(?i)model[ _]not[ _]found|(unknown|no such|invalid|unsupported) model\b|\bmodels?\b[^.;]{0,80}?(does not exist|"
    r"doesn't exist|not found|not exist|is not available|unavailable|is not a valid|not served|not loaded|no access|"
    r"do(es)? not have access)|not a valid model|no (allowed providers|endpoints found)|(模型不存在|不存在的模型)"
)
_MODERATED = r"(?i)moderation|flagged|content[ _-]?(policy|filter)|safety|country|region|territory"
_TOOLS = r"(?i)\btools?\b|tool[ _-]?(choice|call|use)|function[ _-]?call|\bfunctions\b"
_NO_TOOLS = r"(?i)(support|require|enable|allow)\w*[^.;]{0,30}(\btools?\b|tool[ _-](choice|call|use)|function[ _-]?call)"
_TOOLS_ADVICE = (
    "; if it takes no tools, start it with them (vLLM: --enable-auto-tool-choice --tool-call-parser NAME), "
    "or add --tool-calls text"
)
_SYSTEM = r"(?i)\bsystem\b[^.;]{0,20}(role|prompt|message|instruction)|role[^.;]{0,20}\bsystem\b|developer instruction"
_OTHER_NAME = r"(?i)(?:use|try|replaced by|renamed to|in favou?r of|did you mean)[\s:]+(?:the )?['\"`]?([a-z]+_[a-z_]+)\b"
_RANGE = (
    r"(?i)\bmust\b|between|range|at (most|least)|less than|greater than|too (large|small|high|low|big)|exceed"
    r"|invalid value"
)
_NOT_TAKEN = (
    r"(?i)unsupported|not supported|unrecogni[sz]ed|unknown|not permitted|not allowed|unexpected"
    r"|extra (inputs|field)|only the default"
)
_KEPT = ("model", "messages")  # fields of a request that are never left out


def advice(error: ServerError, request: dict[str, Any], key_variable: str, has_key: bool) -> str:
    """Return what to do about an error, from a semicolon on; "" where nothing is known."""
    words, status = error.words, error.status
    if error.spent:
        return "; the quota or balance is spent: add to it, or name another key with --api-key-env, then add --resume"
    if error.busy:
        fix = "take a smaller --concurrency, or wait, then add --resume"
        return f"; the server limits requests or tokens for a time: {fix}"
    if status == 401 or (status == 403 and not re.search(_MODERATED, words)):
        lack = "" if has_key else ", which is not set"
        return f"; it wants a key in the environment variable {key_variable}{lack}; --api-key-env names another one"
    if status == 413:
        fix = "allow larger ones there, or play fewer turns with --option max_turns=N"
        return f"; the request is larger than the server takes: {fix}"
    if status == 403:
        return ""
    if "tools" in request and re.search(_NO_TOOLS, words):
        return _TOOLS_ADVICE
    if re.search(_UNKNOWN_MODEL, words):
        return f"; check --model, which is {request.get('model')!r}; a server lists its models at /v1/models"
    if status in (404, 405) or 300 <= status < 400:
        return "; check --model, and --base-url, which often ends in /v1"
    if status >= 500:
        return ""
    return _of_field(error, request)


def _of_field(error: ServerError, request: dict[str, Any]) -> str:
    """Return what to do about a field of the request, by the name that the server gives."""
    words = error.words
    if (
        error.refuses_thoughts
        and re.search(THOUGHTS, f"{words} {error.param}", re.I)
        and _holds_thoughts(request)
    ):
        return "; add --return-reasoning never, which sends no thoughts back"
    if error.wants_thoughts:
        return "; it wants thoughts back: add --return-reasoning always, or --tool-calls text"
    name = _named(error, request)
    other = re.search(_OTHER_NAME, words)
    if name and other and other[1] != name and name not in ("tools", *_KEPT):
        return f"; add --request {name}=none {other[1]}={request[name]}"
    if name == "max_tokens" and re.search(_RANGE, words):
        return f"; take a smaller --max-tokens, which is {request[name]}"
    if "tools" in request and (
        name == "tools" or (not name and re.search(_TOOLS, f"{words} {error.param}"))
    ):
        return _TOOLS_ADVICE
    if name:
        change = f"change it with --request {name}=VALUE, or " if re.search(_RANGE, words) else ""
        leave = f"leave it out with --request {name}=none"
        return f"; {leave}" if re.search(_NOT_TAKEN, words) else f"; {change}{leave}"
    if re.search(_SYSTEM, words):
        return "; --option system=false sends no system prompt"
    return "; fields of requests are changed by --request NAME=VALUE, and left out by NAME=none"


def _named(error: ServerError, request: dict[str, Any]) -> str:
    """Return the field of the request that an error names first, or apart; "" where it names none."""
    fields = [name for name in request if name not in _KEPT]
    if error.param.partition("[")[0].partition(".")[0] in fields:
        return error.param.partition("[")[0].partition(".")[0]
    found = [
        (place.start(), name)
        for name in fields
        if (place := re.search(rf"\b{re.escape(name)}\b", error.words))
    ]
    return min(found)[1] if found else ""


def _holds_thoughts(request: dict[str, Any]) -> bool:
    return any(re.search(THOUGHTS, " ".join(message)) for message in request.get("messages", ()))
