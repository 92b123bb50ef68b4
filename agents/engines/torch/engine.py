"""The embedded engine: conversations share one batch, each keeps its cache across turns, and none waits for another.

While turns are in progress a task steps on one worker thread: chunks of prompts first, else one token for every running
turn. A conversation's cache can be dropped and fed again to the same bits, so having more conversations than slots
delays them and changes nothing.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...engine import Completion, Cut, OpenSession, Sampling, StopRule, evaluating, keyed_rng
from ...models.architecture import TORCH_ENGINE, check_sampled, check_untried
from ...models.memory import GIB, TooLarge, free_bytes
from ...policy import Policy
from .decoder import Decoder, Weights, unusual
from .runner import (
    Fallback,
    Runner,
    batch_dependence,
    ceil_to,
    distance_from_model,
    keep_memory,
    paying_threads,
    set_threads,
)
from .scheduler import Gathering, PendingTurn, Scheduler, Sequence

T = TypeVar("T")
LARGE = GIB  # bytes of keys and values that are not kept while nobody draws
Drawn = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]


class TorchEngine:
    """Draws turns from a `Policy` on its own device.

    policy: Whose weights draw.
    slots: Conversations that are cached at a time.
    prefill_tokens: Most padded tokens of one chunk batch.
    threads: CPU threads of its worker alone (None: as the process, until `measure_threads`).

    Raises ValueError where a value is out of range, or the model does not fit, also not into memory.
    """

    def __init__(
        self,
        policy: Policy,
        slots: int = 64,
        prefill_tokens: int = 4096,
        threads: int | None = None,
    ) -> None:
        for name, value in (
            ("slots", slots),
            ("prefill_tokens", prefill_tokens),
            ("threads", threads),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; the engine needs at least 1")
        check_sampled(policy.base.config.to_dict(), policy.folder)
        self.policy, self.max_context = policy, policy.max_context
        if policy.device.type == "cpu":
            keep_memory()
        self._make = self._runners()
        self._runner = self._make()
        measure = lambda: distance_from_model(policy.base, self._make(), policy.vocabulary)  # noqa: E731
        check_untried(policy.base.config.to_dict(), policy.folder, TORCH_ENGINE, measure)
        self._drawn_with = self._state()
        self.scheduler = Scheduler(slots, prefill_tokens)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="turngym-engine")
        self.threads = threads or torch.get_num_threads()
        set_threads(self._worker, torch.set_num_threads, self.threads)
        self._gathering = Gathering()
        self._ends = StopRule(policy.tokenizer)
        self._task: asyncio.Task[None] | None = None
        self._open = True

    def session(self) -> "TorchSession":
        """Return a new, empty conversation; it takes a slot when it first draws."""
        return TorchSession(self, Sequence())

    async def sync(self) -> None:
        """Do nothing: the engine draws from the policy itself."""

    def measure_threads(self, most: int) -> None:
        """Let as many threads draw as pay, at most `most`, and one where others could change a bit."""
        rows, own = ceil_to(min(len(self.scheduler.slots), 64), 8), self.forward == "own"
        most = most if own and self.policy.device.type == "cpu" else 1
        self.threads = set_threads(
            self._worker, paying_threads, self._make, self.policy.vocabulary, rows, most
        )

    @property
    def mode(self) -> Literal["exact", "batch-dependent"]:
        """Whether a row's bits are independent of the batch on this machine, found by comparing them once."""
        return "batch-dependent" if self.mode_reason else "exact"

    @cached_property
    def mode_reason(self) -> str:
        """What `mode` found; "" when exact."""
        rows = ceil_to(max(len(self.scheduler.slots), 16), 8)
        with evaluating(self.policy.model):
            return self._worker.submit(
                batch_dependence, self._make, self.policy.vocabulary, rows
            ).result()

    @property
    def forward(self) -> str:
        """What computes the forward passes: `own`, or `transformers` and why."""
        reason = unusual(self.policy.base)
        return f"transformers: {reason}" if reason else "own"

    def close(self) -> None:
        """End every turn in progress with RuntimeError and release the worker thread and the cache."""
        self._open = False
        self._worker.shutdown()
        self._fail(RuntimeError("the engine was closed while it drew a turn"))

    def _runners(self) -> Callable[[], Runner]:
        """Return what makes a runner with an empty cache; all have the same weights."""
        base, device = self.policy.base, self.policy.device
        if unusual(base):
            return lambda: Fallback(base, device, self.max_context)
        needed, there = sum(part.nbytes for part in base.parameters()), free_bytes(str(device))
        if there is not None and needed > there:
            what = f"the rollout's own copy of the weights of {self.policy.folder} needs {needed / GIB:.1f} GiB"
            fix = "use a smaller model, a larger device or --engine vllm"
            raise TooLarge(f"{what}; {device} has {there / GIB:.1f} GiB free; {fix}")
        weights = Weights(base)
        return lambda: Decoder(weights, device)

    def _state(self) -> tuple[int, ...]:
        """Return what differs where the policy's weights were changed."""
        return self.policy.version, *(
            parameter._version for parameter in self.policy.model.parameters()
        )

    def begin(self, request: PendingTurn) -> None:
        if not self._open:
            raise RuntimeError("the engine is closed; open another")
        self.scheduler.add(request)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def free(self, sequence: Sequence) -> None:
        """Free a slot, and with the last one a large cache: one long turn widens it for all slots."""
        self.scheduler.release(sequence)
        idle = self._task is None or self._task.done()
        if idle and not any(self.scheduler.slots) and self._runner.nbytes > LARGE:
            self._runner.forget()

    async def _run(self) -> None:
        """Step while there are turns. Ends when idle, so nothing outlives the caller's event loop."""
        try:
            with evaluating(self.policy.model):
                if (state := self._state()) != self._drawn_with:
                    await self._work(self._runner.refresh)
                    self._drawn_with = state
                while running := self.scheduler.running():
                    if pause := self._gathering.pause(len(running), self.scheduler):
                        await self.scheduler.more(pause)
                    elif all(sequence.chunk is None for sequence in running):
                        with self._gathering.decoding():
                            await self._decode(running)
                    elif batch := self.scheduler.next_chunks(running):
                        await self._prefill(batch)
        except Exception as error:
            self._fail(error)
        except BaseException:
            self._fail(RuntimeError("the event loop stopped while the engine drew a turn"))
            raise

    async def _prefill(self, batch: list[Sequence]) -> None:
        slots, spans = _slots(batch), [sequence.chunk or (0, 0) for sequence in batch]
        chunks = [
            np.array(sequence.tokens[slice(*span)], np.int64)
            for sequence, span in zip(batch, spans)
        ]
        await self._work(lambda: self._runner.prefill(slots, [start for start, _ in spans], chunks))
        for sequence, (_, stop) in zip(batch, spans):
            sequence.cached = stop

    async def _decode(self, running: list[Sequence]) -> None:
        """Feed one token of every sequence that has a turn; where it was the last, draw the next."""
        fed = running + running[-1:] * (-len(running) % self._runner.rows)
        slots, lengths = _slots(fed), [sequence.cached for sequence in fed]
        tokens = [sequence.tokens[sequence.cached] for sequence in fed]
        settings, drawing = [(Sampling(), 0.0)] * len(fed), dict[int, PendingTurn]()
        for row, sequence in enumerate(running):
            request = sequence.request
            if request is not None and sequence.cached == len(sequence.tokens) - 1:
                drawing[row] = request
                settings[row] = request.sampling, request.uniforms[len(request.tokens)]
        drawn = await self._work(
            lambda: sample(self._runner.decode(slots, lengths, tokens), settings)
        )
        for sequence in running:
            sequence.cached += 1
        self._accept(drawing, drawn)

    def _accept(self, drawing: dict[int, PendingTurn], drawn: tuple[NDArray[Any], ...]) -> None:
        for row, request in drawing.items():
            if request.future.done():
                continue
            (token, logp, entropy), sequence = (
                (column[row].item() for column in drawn),
                request.sequence,
            )
            if not np.isfinite(entropy):
                what = f"the policy's logits are not finite after {len(sequence.tokens)} tokens (entropy {entropy})"
                broken = f"its weights (version {self.policy.version}) are broken: go back to a checkpoint"
                raise FloatingPointError(f"{what}; {broken}")
            request.tokens.append(token)
            request.logp.append(logp)
            request.entropy.append(entropy)
            sequence.tokens.append(token)
            stop = self._ends.reason(request, self.policy.end_ids)
            if stop is not None:
                self.scheduler.finish(sequence)
                request.future.set_result(request.completion(stop, self.policy.version))

    async def _work(self, step: Callable[[], T]) -> T:
        """Run a model step on the worker thread, behind the copies that the scheduler asks for."""
        copies, self.scheduler.copies = self.scheduler.copies, []

        def copy_and_step() -> T:
            for copy in copies:
                self._runner.copy(*copy)
            return step()

        return await asyncio.get_running_loop().run_in_executor(self._worker, copy_and_step)

    def _fail(self, error: Exception) -> None:
        """End every turn with `error`; forget the cache, where numbers that are not finite would spoil other rows."""
        requests = self.scheduler.clear()
        self._runner.forget()
        for request in requests:
            if not request.future.done() and not request.future.get_loop().is_closed():
                request.future.set_exception(error)


class TorchSession(OpenSession):
    """One conversation on a `TorchEngine`."""

    def __init__(self, engine: TorchEngine, sequence: Sequence) -> None:
        super().__init__(sequence.tokens)
        self.engine, self.sequence = engine, sequence

    @property
    def drawing(self) -> bool:
        return self.sequence.request is not None

    async def sample(
        self,
        tokens: NDArray[np.int32],
        sampling: Sampling,
        key: tuple[int, ...],
        cut: Cut | None = None,
    ) -> Completion:
        """Draw a turn (see `engine.Session`). Raises as `turn`; FloatingPointError where logits are not finite."""
        sequence, turn, version = (
            self.sequence,
            self.turn(tokens, sampling, cut),
            self.engine.policy.version,
        )
        if not turn.most:
            return turn.completion("context", version)
        self.version = version
        sequence.append(tokens)
        uniforms, future = (
            keyed_rng(key).random(turn.most),
            asyncio.get_running_loop().create_future(),
        )
        sequence.request = PendingTurn(
            sampling, turn.most, cut, sequence=sequence, uniforms=uniforms, future=future
        )
        try:
            self.engine.begin(sequence.request)
            return await sequence.request.future
        except BaseException:
            self.close()  # with half a turn among its tokens the session has no sensible next
            raise
        finally:
            sequence.request = None

    def _twin(self, length: int) -> Self:
        """Return a sibling: a copy where a slot is free, else fed when it draws. Raises as `Sequence.fork`."""
        twin = type(self)(self.engine, self.sequence.fork(length))
        if twin.length:
            self.engine.scheduler.share(self.sequence, twin.sequence)
        return twin

    def close(self) -> None:
        """Free the slot; a turn in progress ends with RuntimeError."""
        if not self.closed:
            self.closed = True
            self.engine.free(self.sequence)
            request = self.sequence.request
            if request is not None and not request.future.done():
                request.future.set_exception(
                    RuntimeError("the session was closed while it drew a turn")
                )


def _slots(sequences: list[Sequence]) -> list[int]:
    return [sequence.slot for sequence in sequences if sequence.slot is not None]


@torch.inference_mode()
def sample(logits: Tensor, rows: list[tuple[Sampling, float]]) -> Drawn:
    """Return token, log-probability as drawn (nats) and untempered, untruncated entropy (nats) of every row, [n] each.

    `logits` is float32 [n, vocabulary]; each of the n `rows` has its sampling and a uniform in [0, 1). Temperature 0
    takes the most likely token, the lowest id among equals, with log-probability 0. Everything reduces along the
    vocabulary inside one row, so that its numbers do not depend on the other rows.
    """
    if logits.device.type == "mps":  # has no float64
        logits = logits.cpu()
    each = [(uniform, one.temperature, one.top_p, one.top_k) for one, uniform in rows]
    uniform, temperature, top_p, top_k = torch.tensor(each, dtype=torch.float64).T[
        ..., None
    ]  # [n, 1] each
    logp = logits.log_softmax(-1).clamp_min_(torch.finfo(logits.dtype).min)
    probability = logits.softmax(-1)
    entropy = -torch.linalg.vecdot(probability, logp)
    greedy, shaped = temperature == 0, logits
    if (tempered := temperature.masked_fill(greedy, 1).float()).ne(1).any():
        shaped = logits / tempered.to(logits.device)
    if (top_p < 1).any() or (top_k > 0).any():
        shaped = _truncated(shaped, top_p.to(logits.device), top_k.to(logits.device))
    if shaped is not logits:
        logp, probability = shaped.log_softmax(-1), shaped.softmax(-1)
    cdf = probability.double().cumsum_(-1)
    # A target in (0, total] never meets a token of probability 0 and never runs past the last one.
    target = (1 - uniform.to(cdf.device)) * cdf[:, -1:]
    token = torch.searchsorted(cdf, target).clamp_(max=logits.shape[1] - 1)
    drawn = logp.gather(1, token)
    if greedy.any():  # a maximum, which costs no sort of the vocabulary
        greedy = greedy.to(logits.device)
        token = torch.where(greedy, logits.argmax(-1, keepdim=True), token)
        drawn = drawn.masked_fill(greedy, 0)
    # Ids are exact in float32 below 2**24, and one transfer a step is cheaper than three.
    found = torch.stack((token[:, 0].float(), drawn[:, 0], entropy)).cpu().numpy()
    return found[0].astype(np.int64), found[1], found[2]


def _truncated(logits: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Return logits with -inf where they are cut; a top-p of 1 and a top-k of 0 keep all."""
    ordered, order = logits.sort(stable=True, dim=-1, descending=True)
    probability = ordered.softmax(-1).double()
    before = probability.cumsum(-1) - probability
    rank = torch.arange(logits.shape[1], device=logits.device)
    keep = ((rank < top_k) | (top_k == 0)) & ((before < top_p) | (top_p == 1))
    return logits.masked_fill(~torch.zeros_like(keep).scatter_(1, order, keep), -torch.inf)
