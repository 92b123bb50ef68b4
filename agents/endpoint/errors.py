"""What a server says in place of an answer: its own words, found in whatever shape they come, and what they mean.

Servers word the same failure in many ways, so a meaning is recognised by patterns of words and never by one server's
sentence. What a request itself holds is not looked at: some servers repeat it in their errors.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MOST_WORDS = 4000  # characters of an error that are looked at
DEEPEST = 6  # levels of an error; some hold that of another server as a text
_SAYS = {  # members of an error that hold words of the server; others may repeat the request
    *(
        "error",
        "errors",
        "fault",
        "exception",
        "innererror",
        "cause",
        "detail",
        "details",
        "reason",
        "title",
    ),
    *(
        "message",
        "messages",
        "msg",
        "error_message",
        "errormessage",
        "error_msg",
        "err_msg",
        "errmsg",
        "description",
    ),
    *(
        "status_msg",
        "status_message",
        "error_description",
        "base_resp",
        "metadata",
        "raw",
        "response",
        "body",
    ),
    *(
        "code",
        "type",
        "__type",
        "status",
        "status_code",
        "statuscode",
        "error_code",
        "err_code",
        "errcode",
    ),
    *("param", "parameter", "loc"),
}
_KINDS = ("type", "__type")
_NO_ERROR = (
    "0",
    "200",
    "false",
    "none",
    "null",
    "ok",
    "success",
)  # what servers write where nothing is wrong
_STATUS = ("code", "status", "status_code", "statuscode", "error_code")
_PARAM = ("param", "parameter", "loc")

_TIMES = (
    r"per[ _-]?(second|minute|min\b|hour|day|month)|/ ?(min|minute|day|hour)\b|\b[rt]p[smhd]\b|this minute"
    r"|\b(daily|hourly|weekly|monthly)\b"
)
_BUSY = rf"(?i){_TIMES}|rate[ _-]?limit|too many requests|throttl|please wait|overloaded|速率|频率|限流|并发"
_SPENT = (
    r"(?i)insufficient[ _-]?(account )?(quota|balance|credit|funds)|exceeded your current quota"
    r"|out of (credit|quota|funds)|payment required|requires more credits|can only afford"
    r"|(credit|account) balance is too low|billing[ _]hard[ _]limit"
    r"|spending (limit|cap)|arrear|no (remaining|available) (credit|quota|balance)|余额不足|欠费|请充值"
)
_LENGTH = r"(token|length|count|size|window|limit|maximum|context|n_ctx)"
_CHAT = r"(prompt|inputs?|messages?|conversation|context|query)"
_OVER = r"(exceed|overflow|longer than|greater than|larger than|more than|too (long|large|big|many)|beyond|not fit)"
_FULL = (
    # "context_length_exceeded", "Context size has been exceeded", "context window exceeds limit", "context is full"
    r"context[ _-]?(length|size|window|limit)?[^.;]{0,40}(exceed|overflow|is full|too long)",
    # "exceeds the available context size", "longer than the model's context length", "does not fit into the context"
    rf"{_OVER}[^.;]{{0,80}}(context[ _-]?(length|size|window|limit)|the context\b|n_ctx|max_model_len|model length)",
    # "This model's maximum context length is 8192 tokens", "maximum prompt length is 131072 but the request contains"
    r"max(imum)? (allowed )?(context|prompt|sequence|input|model)[ _](length|size|window|tokens)"
    r"( is| of|:)? ?(only )?\d[^;]{0,120}(but|however|your|request|given|got|contain|result|you |reduce|asked|exceed)",
    r"model'?s? maximum context length",
    r"context (length|size|window) (is|of) (only )?\d[^;]{0,80}(but|however|request|prompt|given|exceed)",
    r"context (length|window|size) (is|of) only \d",
    # "prompt is too long", "Input is too long for requested model", "the conversation is too large"
    rf"{_CHAT}( length| size| tokens?)? ?(is|are|was|were)? ?(still )?too[ _](long|large|big)\b",
    r"(prompt|input|messages?|conversation)[ _]too[ _](long|large)",
    r"(messages|input|prompt)\b[^;]{0,40}string too long",
    # "The input token count (9) exceeds the maximum", "Input tokens exceed the configured limit", "Prompt exceeds max"
    rf"{_CHAT}[ _]?{_LENGTH}?[^.;]{{0,60}}exceed\w* [^.;]{{0,40}}"
    r"(max[^.;]{0,30}(length|tokens?\b|context)|limit:?( of)? \d)",
    r"exceed\w* (the )?max\w* (context|sequence)",
    r"max_(prompt|input|seq|model|context)\w*(length|len|tokens) (is |was )?exceeded",
    r"exceed\w* (the )?(model )?(max\w* )?(model token|token|input|prompt) limit:? ?\(?\d",
    r"exceed\w* (the )?(model'?s? )?(max\w* )?(number of )?(input|prompt) (tokens|length)",
    # "`inputs` tokens + `max_new_tokens` must be <= 2048", "`inputs` must have less than 1024 tokens"
    r"\binputs?\W{1,3}(tokens )?[^.;]{0,40}must (be <=?|have less than|be less than|be at most) ?\d",
    r"range of input length should be",
    r"tokens in (the )?(request|prompt|input)[^.;]{0,20}(more than|cannot exceed|exceeds?) (the )?(max|\d)",
    r"too many (input |prompt )?tokens[^;]{0,90}\b(prompt|inputs?|context|messages|maximum)\b",
    r"(reduce|shorten) (the )?(length|size) of (the |your )?(messages|prompt|input|conversation)",
    r"(reduce|shorten) (the |your )(prompt|messages|input|conversation)",
    r"超长|(超过|超出)[^。]{0,12}(长度|上下文|最大)",
)
_CONTEXT_FULL = re.compile("|".join(f"(?:{pattern})" for pattern in _FULL), re.IGNORECASE)
_NOT_FULL = (
    r"(?i)(context[ _]?(window|length|size)|max_model_len)\W{0,3}(is )?too small|minimum is \d"
)
_CANNOT_BE_FULL = (401, 402, 403, 404, 405, 407, 429)  # what their words mean is said by the status

THOUGHTS = (
    r"reasoning(_content|_details)?\b|thinking(_blocks)?\b|thought[_ ]signature|\bthoughts?\b"
)
_DEMANDS = (
    r"(?i)must\b[^.;]{0,30}\b(be|have|contain|include|carry)\b[^.;]{0,20}\b(pass|sen[dt]|return|provid|includ|present|"
    r"preserv|set|non-?empty|follow)|must (contain|include|carry|have|start|begin)\b|pass\w* back|\bmissing\b|"
    r"\brequired?s?\b|\bexpect(s|ed)\b|is absent|not (found|provided|present|returned)|\black(s|ing)\b|without\b|"
    r"\bneeds?\b|必须|缺少"
)
_REFUSES = (
    r"(?i)unsupported|not (be )?(supported|permitted|allowed|accepted|valid)|\bextra (input|field|inputs|fields)\b|"
    r"(unexpected|unknown|unrecogni[sz]ed|invalid|no such) (request )?(field|name|property|key|parameter|argument)|"
    r"forbidden|incompatible|must not|cannot be (sent|set|passed|included)"
)


@dataclass(frozen=True)
class ServerError:
    """An error in a server's own words.

    status: of HTTP or, in an answer with status 200, the one that the error names; 0 where there is none.
    words: all that the server says, its names for the error included.
    param: the parameter that it names apart, if it does.
    """

    status: int
    words: str
    param: str = ""

    @property
    def busy(self) -> bool:
        """Whether another try, later, may be answered: too many requests or tokens for now."""
        return self.status == 429 or bool(re.search(_BUSY, self.words))

    @property
    def spent(self) -> bool:
        """Whether what was paid for is used up; a limit by the minute or the day comes back by itself."""
        return self.status == 402 or (
            bool(re.search(_SPENT, self.words)) and not re.search(_TIMES, self.words, re.I)
        )

    @property
    def context_full(self) -> bool:
        """Whether the conversation is too long for the model; a limit on tokens for a time is none on its length."""
        if (
            self.status in _CANNOT_BE_FULL
            or re.search(_BUSY, self.words)
            or re.search(_NOT_FULL, self.words)
        ):
            return False
        return bool(_CONTEXT_FULL.search(self.words))

    @property
    def wants_thoughts(self) -> str:
        """The name of the thoughts that the server wants back; "" where it does not ask for any."""
        name = re.search(THOUGHTS, f"{self.words} {self.param}", re.I)
        asks = self.status in (0, 400, 422, 500) and re.search(_DEMANDS, self.words)
        if name is None or not asks or re.search(_REFUSES, self.words):
            return ""
        return name.group().lower()

    @property
    def refuses_thoughts(self) -> bool:
        """Whether the server does not take thoughts in messages."""
        return bool(
            re.search(THOUGHTS, f"{self.words} {self.param}", re.I)
            and re.search(_REFUSES, self.words)
        )


def error_page(status: int, page: str) -> ServerError:
    """Return the error that came as the body of an answer: JSON, a stream of JSON, HTML or any other text."""
    values = list(_json_values(page))
    if not values:
        return ServerError(status, plain_text(page))
    found = [one for value in values for one in _said(value)]
    words = _joined(text for _, text in found)
    return ServerError(status or _status_of(found), words or plain_text(page), _param_of(found))


def error_in(value: Any) -> ServerError | None:
    """Return the error that stands in an answer with status 200; None where there is none.

    Beside choices only `error` is one; in place of them, whatever says something.
    """
    if isinstance(value, list) and len(value) == 1:  # as Google wraps errors
        value = value[0]
    if not isinstance(value, dict):
        return None
    said = {"error": value.get("error")} if value.get("choices") else value
    found = [(name, text) for name, text in _said(said) if text.casefold() not in _NO_ERROR]
    if all(
        name in _KINDS for name, _ in found
    ):  # other interfaces name the kind of their answers, too
        return None
    return ServerError(_status_of(found), _joined(text for _, text in found), _param_of(found))


def is_stream(page: str) -> bool:
    """Return whether a body is a stream of events, as servers send it that do not heed that none was asked for."""
    return page.startswith(("data:", "event:", ": "))


def error_in_stream(page: str) -> ServerError | None:
    """Return the first error in a stream of events; None where the body is none, or holds no error."""
    values = _json_values(page) if is_stream(page) else ()
    return next((error for value in values if (error := error_in(value)) is not None), None)


def plain_text(page: str) -> str:
    """Return the words of a page: what stands between its tags, if it has tags."""
    text = re.sub(
        r"(?is)<(script|style)\b.*?</\1>|<!--.*?-->|<[^<>]{0,2000}>", " ", page[: 4 * MOST_WORDS]
    )
    return " ".join(text.split())[:MOST_WORDS]


def _json_values(page: str) -> Iterator[Any]:
    """Yield the JSON of a body, or that of each event of a stream."""
    text = page.lstrip("\ufeff \t\r\n")
    lines = [line.partition(":")[2] for line in text.splitlines() if line.startswith("data:")]
    for part in lines or [text]:
        try:
            yield json.loads(part)
        except (ValueError, RecursionError):
            continue


def _said(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield what a server says, as texts with the names of their members, from the outside in."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict):
        members = [(str(key).casefold(), member) for key, member in value.items()]
        for key, member in sorted(members, key=lambda one: isinstance(one[1], dict | list)):
            if key in _SAYS:
                yield from _said(member, key, depth + 1)
    elif isinstance(value, list):
        for member in value[:20]:
            yield from _said(member, name, depth + 1)
    elif isinstance(value, str) and value.strip():
        inner = list(_json_values(value)) if value.lstrip().startswith(("{", "[")) else []
        yield from (one for member in inner for one in _said(member, name, depth + 1))
        if not inner:
            yield name, value.strip()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, f"{value}"


def _status_of(found: list[tuple[str, str]]) -> int:
    codes = [text for name, text in found if name in _STATUS and re.fullmatch("[45][0-9]{2}", text)]
    return int(codes[0]) if codes else 0


def _param_of(found: list[tuple[str, str]]) -> str:
    """Return the parameter that an error names; of a path such as `body`, `messages`, 0, `name` the last part."""
    names = [text for name, text in found if name in _PARAM and not text.isdecimal()]
    return names[-1] if names else ""


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))[:MOST_WORDS]
