"""What a server says of the end of an answer: complete, cut, or broken off, by the words that are known.

A word that is not known is a failure of the infrastructure, never an answer: servers have many words for what went
wrong with them, and new ones come. `--finish-reason WORD` declares another one good.
"""

import re
from collections.abc import Collection
from enum import StrEnum


class Finish(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"  # where the model ended it, or nothing is said
    CUT = "cut"  # at the most tokens of an answer
    CONTEXT = "context"  # where the context of the model was full
    WITHHELD = "withheld"  # for its content; the same request would meet the same
    BROKEN = "broken"  # by a failure that may pass
    FULL = "full"  # by a server with too much to do
    UNKNOWN = "unknown"

    @property
    def answers(self) -> bool:
        """Whether what came is the model's own answer."""
        return self in (Finish.COMPLETE, Finish.CUT, Finish.CONTEXT)


_WORDS = {
    Finish.COMPLETE: (
        *("stop", "stopped", "stop_sequence", "stop_token", "eos", "eos_token", "eos_found"),
        *("end", "end_turn", "end_of_turn", "end_of_text", "complete", "completed"),
        *("tool_calls", "tool_call", "tool_calling", "tool_use", "function_call", "function_calls"),
    ),
    Finish.CUT: (
        *("length", "max_length", "token_limit"),
        *("max_tokens", "max_output_tokens", "max_new_tokens", "max_completion_tokens"),
    ),
    Finish.CONTEXT: (
        *("model_context_window_exceeded", "context_window_exceeded", "context_length_exceeded"),
        *("context_length", "max_context_length", "model_length"),
    ),
    Finish.WITHHELD: (
        *(
            "content_filter",
            "content_filtered",
            "content_policy_violation",
            "moderation",
            "flagged",
            "sensitive",
        ),
        *(
            "safety",
            "image_safety",
            "recitation",
            "prohibited_content",
            "blocklist",
            "spii",
            "language",
        ),
        *("refusal", "guardrail_intervened", "error_toxic"),
    ),
    Finish.BROKEN: (
        *(
            "error",
            "abort",
            "aborted",
            "cancel",
            "cancelled",
            "canceled",
            "failed",
            "failure",
            "disconnect",
        ),
        *(
            "network_error",
            "timeout",
            "timed_out",
            "server_error",
            "internal_error",
            "internal_server_error",
        ),
        *("unavailable", "service_unavailable"),
    ),
    Finish.FULL: (
        *("insufficient_system_resource", "overload", "overloaded", "overloaded_error", "capacity"),
        *("rate_limit", "rate_limited", "resource_exhausted"),
    ),
}
_MEANINGS = {word: meaning for meaning, words in _WORDS.items() for word in words}


def finish_of(reason: str, good: Collection[str] = ()) -> Finish:
    """Return what a finish reason means; `good` are other words for a complete answer. An empty one says nothing."""
    if not reason.strip() or _plain(reason) in map(_plain, good):
        return Finish.COMPLETE
    return _MEANINGS.get(_plain(reason), Finish.UNKNOWN)


def _plain(reason: str) -> str:
    """Return a word in small letters with `_`, as `tool_calls` for `TOOL-CALLS` and `FinishReason.TOOL_CALLS`."""
    word = re.sub(r"[\s-]+", "_", reason.strip().casefold())
    return re.sub(r"^finish_?reason[._]", "", word)
