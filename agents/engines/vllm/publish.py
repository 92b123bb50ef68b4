"""Publishing the policy's weights to servers, and proof that they have them before anything is drawn.

Each version is written as a whole, loaded under a new name, and probed: the server's log-probabilities of fixed prompts
are compared with the learner's. Every part of a forward pass reaches these numbers, so whatever is wrong with the
weights moves them. The version before it stays loaded, as requests may still name it; older ones are deleted.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from ...engine import EngineFailure, EngineFault, Sampling, evaluating
from ...policy import Policy
from .client import CompletionRequest, Replica

log = logging.getLogger(__name__)
Answer = Sequence[
    Mapping[int, float]
]  # log-probabilities of the likeliest tokens behind each prompt, by id
PAUSE = 0.5  # seconds between two attempts at a server that is not there
AWAY = frozenset({EngineFault.CONNECT, EngineFault.TIMEOUT, EngineFault.FULL})
# Longer than two blocks of a server's prefix cache, so that what it has kept there shows.
LENGTH = 288
CHAT = (
    "<|im_start|>system\nYou solve problems with a Python tool.<|im_end|>\n<|im_start|>user\nA farm has 17 rows of 23 "
    "trees; 48 were cut. How many are left, and which share is that?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
    '{"name": "python", "arguments": {"code": "n = 17 * 23\\nprint(n - 48, (n - 48) / n)"}}\n</tool_call><|im_end|>\n'
    "<|im_start|>tool\n343 0.8772378516624041<|im_end|>\n<|im_start|>assistant\nThere are 343 trees left, or 87.7 %.\n"
)
POINTS = 8  # prefixes of each prompt behind which it is asked
MARGIN = 4.0  # a right server is so many times nearer to the new weights than to others
# How far two right computations of the same log-probabilities lie apart, in nats: the most, and the root mean square.
# LEAST is always allowed, and LIMIT is never exceeded. In bfloat16 a weight keeps 8 bits, and the server rounds the
# adapter too.
LEAST = {"float32": (2e-4, 1.5e-5), "bfloat16": (0.1, 0.02)}
LIMIT = {"float32": (1e-3, 3e-4), "bfloat16": (1.0, 0.15)}
# How much larger it may become at weights yet to come; up to 4.8 and 2.8 were measured.
GROWTH = (10.0, 4.0)


@dataclass(frozen=True, eq=False)
class Published:
    """Weights: their name on the servers and their folder, if they are an adapter; the learner's log-probabilities."""

    name: str
    folder: Path | None
    expected: NDArray[np.float32]


class Publisher:
    """Keeps servers at the policy's weights; a server's `model` is the name of those that it was last seen to have.

    Without LoRA the servers' own model is only probed. They must see the folder `adapters` under the same path; what is
    in it is deleted. Each finding that is not plainly right is logged.
    """

    def __init__(self, policy: Policy, servers: Sequence[Replica], adapters: Path) -> None:
        self.version = -1
        self.present: Published | None = None
        self._before: Published | None = None
        self._policy, self.servers, self._adapters = policy, tuple(servers), adapters
        self._run, self._count = (
            uuid4().hex[:8],
            0,
        )  # no name is used twice: servers keep what they computed under it
        self._prompts, vocabulary = (asked := prompts(policy)), policy.vocabulary
        # The prompts' own tokens are not asked for: with an adapted head vLLM fails on them unless alone in a batch.
        self._questions = [
            CompletionRequest(p.tolist(), 1, (), Sampling(), frozenset(), vocabulary) for p in asked
        ]
        self._noise: dict[Replica, NDArray[np.float64]] = {}
        shutil.rmtree(adapters, ignore_errors=True)
        adapters.mkdir(parents=True)
        with policy.reference():
            self._reference = self._write("zero", expected(policy, self._prompts))
        if self._reference.folder is not None:
            file = self._reference.folder / "adapter_model.safetensors"
            zeros = {name: torch.zeros_like(tensor) for name, tensor in load_file(file).items()}
            save_file(zeros, file, metadata={"format": "pt"})

    def check(self) -> None:
        """Raise ValueError where a server cannot be reached, has another model, or does not take the adapters."""
        try:
            for server in self.servers:
                asyncio.run(self._accepted(server))
        except EngineFailure as failure:
            fix = "start one with `--engine vllm` alone, or give the URL of one that fits"
            raise ValueError(f"{failure}; {fix}") from None

    async def publish(self) -> None:
        """Bring every server to the policy's weights as they are, and prove it.

        Servers that cannot be reached are left without a `model`; where none can, one is waited for. Raises
        EngineFailure: VERSION, a server has other weights; MISMATCH, another model; else why none could be reached;
        OSError: the adapter cannot be written.
        """
        now = await asyncio.to_thread(expected, self._policy, self._prompts)
        version, present = self._policy.version, self.present
        if present is None or self.version != version or not np.array_equal(now, present.expected):
            self._count += 1
            present = await asyncio.to_thread(self._write, f"v{version}.{self._count}", now)
        for server in self.servers:
            server.model = ""
        until = time.monotonic() + max(server.deadline for server in self.servers)
        while True:
            bringing = (self._bring(server, present) for server in self.servers)
            names = await asyncio.gather(*bringing, return_exceptions=True)
            failures = [each for each in names if isinstance(each, BaseException)]
            if wrong := [
                each
                for each in failures
                if not (isinstance(each, EngineFailure) and each.fault in AWAY)
            ]:
                await self._drop(present)
                raise wrong[0]
            if len(failures) < len(names):
                break
            if time.monotonic() > until:
                raise failures[0]
            await asyncio.sleep(PAUSE)
        self.version = version
        if present is not self.present:
            old, self._before, self.present = self._before, self.present, present
            await self._drop(old)
        for server, name in zip(self.servers, names):
            server.model = name if isinstance(name, str) else ""

    async def restore(self, server: Replica) -> None:
        """Load what is published into a server that was started again, and prove it; raises as `publish`."""
        while (present := self.present) is not None:
            name = await self._bring(server, present)
            if present is self.present:  # else other weights were published meanwhile
                server.model = name
                return
        raise RuntimeError("nothing was published yet; await publish()")

    def _write(self, name: str, now: NDArray[np.float32]) -> Published:
        if self._policy.lora is None:
            return Published("", None, now)
        self._policy.save_adapter(self._adapters / name)
        return Published(f"turngym-{self._run}-{name}", self._adapters / name, now)

    async def _drop(self, gone: Published | None) -> None:
        if gone is not None and gone.folder is not None and gone is not self.present:
            for server in self.servers:
                await server.unload(gone.name)
            await asyncio.to_thread(shutil.rmtree, gone.folder, True)

    async def _bring(self, server: Replica, present: Published) -> str:
        """Load `present` into a server that lacks it, and probe it; return the name that it has there."""
        try:
            accepted = await self._accepted(server)
            name, answer = await self._ask(server, present)
        except EngineFailure as failure:
            if failure.fault is EngineFault.STATUS:
                await server.ask(
                    "GET", "/health"
                )  # one that is ending refuses everything, and is away
            raise
        others = {}  # what a failed update would leave
        if present.folder is not None:
            others["no adapter"] = self._reference.expected
            if before := self._before if present is self.present else self.present:
                others[f"adapter {before.name}"] = before.expected
        wrong, near = compare(answer, present.expected, others, accepted)
        if wrong:
            message = (
                f"it does not answer with the weights of {name}: {wrong}. Look at what it loaded"
            )
            raise server.failure(EngineFault.VERSION, f"{message}, or start it again")
        if near:
            what = f"{name} is right, but the probe cannot tell it from {' and '.join(near)}"
            log.info("%s: %s: the weights differ too little", server.url, what)
        return name

    async def _ask(self, server: Replica, weights: Published) -> tuple[str, Answer]:
        """Load `weights`, and return their name on the server and what the server answers with them."""
        name, policy = weights.name, self._policy
        for last in (False, True):
            if weights.folder is None:
                name, _ = await server.base_model()
            else:
                await server.load(name, weights.folder)
            try:
                drawn = [await server.draw(question, name) for question in self._questions]
                break
            except EngineFailure as failure:
                if last or failure.fault is not EngineFault.STATUS:
                    raise  # else it may have lost the adapter by starting again in between
        if (most := max(max(each.likeliest) for each in drawn)) >= policy.vocabulary:
            message = (
                f"its model knows token id {most}, and {policy.folder} has {policy.vocabulary} ids"
            )
            raise server.failure(EngineFault.MISMATCH, message)
        return name, [each.likeliest for each in drawn]

    async def _accepted(self, server: Replica) -> NDArray[np.float64]:
        """Return what to take for noise of this server; MISMATCH where it has not the policy's model.

        With LoRA it is asked through an adapter of zeros: while adapters are loaded, some servers put a part of one on
        the model that is asked for without any.
        """
        if server not in self._noise:
            policy, dtype = self._policy, str(self._policy.base.dtype).removeprefix("torch.")
            name, answer = await self._ask(server, self._reference)
            if self._reference.folder is not None:
                await server.unload(name)
            found, most = noise(gaps(answer, self._reference.expected)), LIMIT[dtype]
            if not (found <= most).all():
                differ = f"log-probabilities of the same tokens differ by up to {found[0]:.2e} nats"
                limit = f"{most[0]:g} are allowed in {dtype}, root mean square {found[1]:.2e}"
                raise server.failure(
                    EngineFault.MISMATCH, f"its model is not {policy.folder}: {differ} ({limit})"
                )
            self._noise[server] = allowed(found, dtype)
        return self._noise[server]


def prompts(policy: Policy, length: int = LENGTH) -> tuple[NDArray[np.int32], ...]:
    """Return `POINTS` prefixes, int32 [at most length], of a chat and of tokens spread over the whole vocabulary."""
    length = min(length, policy.max_context - 1)
    chat = policy.tokenizer.encode(CHAT, add_special_tokens=False).ids
    known = min(policy.vocabulary, policy.tokenizer.get_vocab_size())
    spread = np.random.Generator(np.random.Philox(key=1)).integers(0, known, length)
    texts = np.resize(np.array(chat, np.int32), length), spread.astype(np.int32)
    return tuple(
        text[: length * (point + 1) // POINTS] for text in texts for point in range(POINTS)
    )


@torch.no_grad()
def expected(policy: Policy, asked: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
    """Return the learner's log-probabilities [prompts, vocabulary]; each longest prompt serves for its prefixes."""
    rows = []
    with evaluating(policy.model):
        for first in range(0, len(asked), POINTS):
            group = asked[first : first + POINTS]
            ids = torch.from_numpy(group[-1]).long().to(policy.device)
            logits = policy.model(input_ids=ids[None], use_cache=False).logits[
                0, [len(each) - 1 for each in group]
            ]
            rows.append(logits.float().log_softmax(-1).cpu().numpy())
    return np.concatenate(rows)


def gaps(answer: Answer, right: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how far the log-probabilities of an answer lie above those of `right` [prompts, vocabulary]."""
    rows = zip(right, answer, strict=True)
    return np.concatenate([np.array(list(top.values())) - row[list(top)] for row, top in rows])


def noise(gap: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest of the differences, and their root mean square."""
    return np.array([np.abs(gap).max(), np.sqrt(np.mean(np.square(gap)))])


def allowed(found: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Return what to take for noise of a server whose model was so far from the learner's."""
    return np.clip(np.multiply(GROWTH, found), LEAST[dtype], LIMIT[dtype])


def compare(
    answer: Answer,
    new: NDArray[np.float32],
    others: Mapping[str, NDArray[np.float32]],
    accepted: NDArray[np.float64],
) -> tuple[str, list[str]]:
    """Return what is wrong with an answer, "" where it is right, and which of `others` it cannot be told from.

    `others` are what is expected at weights that the server must not have, by name. They are apart where they differ
    from the new weights by more than `MARGIN + 1` times `accepted`: a right answer is then `MARGIN` times nearer to the
    new weights than to them (triangle inequality).
    """
    gap, far = gaps(answer, new), {name: gaps(answer, other) for name, other in others.items()}
    if (noise(gap) <= accepted).all():
        return "", [
            name
            for name, other in far.items()
            if noise(gap - other)[1] <= (MARGIN + 1) * accepted[1]
        ]
    distance = {name: noise(each)[1] for name, each in {"the new weights": gap, **far}.items()}
    wrong = f"its log-probabilities are off by up to {noise(gap)[0]:.2e} nats (allowed {accepted[0]:.2e}); root mean"
    apart = ", ".join(f"{far:.2e} from {name}" for name, far in distance.items())
    return f"{wrong} square {apart}; nearest to {min(distance, key=distance.__getitem__)}", []
