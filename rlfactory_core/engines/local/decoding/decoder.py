"""Batched decoding of all live trajectories, whose keys and values are kept from turn to turn.

Slots 0..n-1 are being decoded. A trajectory whose turn has ended is *parked* in a slot behind them while its tool runs;
when it comes back, only its new tokens are prefilled. All code here is synchronous and runs on one thread; `sampler`
is asynchronous and calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfactory_core.engines.local.decoding.prompts import Prompts
from rlfactory_core.engines.local.model.kv_cache import Above, Cache
from rlfactory_core.engines.local.model.pack import common_prefix
from rlfactory_core.engines.local.model.plans import DecodePlan, PrefillPlan
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.types import SampledTokens, SamplingParams

ROWS = 8  # of the cache at first, which are doubled as often as needed
PIECE = 2**24  # entries of the mask of attention, rows x width x keys, up to which new tokens are computed at once
_NARROWEST = 16  # tokens of each row in a piece


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One turn to sample; ``ids`` are all tokens of the trajectory so far."""

    session: str
    ids: tuple[int, ...]
    params: SamplingParams


Finished = list[tuple[Request, SampledTokens]]


def draw_uniforms(params: Sequence[SamplingParams]) -> Tensor:
    """[turns, tokens of the longest] numbers in [0, 1), one for each token of a turn, drawn from the turn's own seed.

    What a trajectory samples does not depend on the others in its batch (up to rounding in the logits), and a resume
    needs no saved random state. Greedy turns have zeros.
    """
    uniforms = torch.zeros(len(params), max(p.max_tokens for p in params))
    for row, p in zip(uniforms, params, strict=True):
        if p.temperature > 0:
            generator = torch.Generator().manual_seed(p.seed & 0x7FFF_FFFF_FFFF_FFFF)
            row[: p.max_tokens] = torch.rand(p.max_tokens, generator=generator)
    return uniforms


def sample(logits: Tensor, uniforms: Tensor, temperature: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """One token a row, by inverting the cumulative distribution at the row's uniform number.

    Args:
        logits: [n, vocabulary].
        uniforms, temperature, top_p: [n]; temperature 0 is greedy.

    Returns:
        tokens [n] and their log-probs [n] at the row's temperature (at 1 for greedy rows), before top-p.
    """
    scale = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    probs = torch.softmax(logits.float() / scale[:, None], -1)
    kept = probs if bool((top_p >= 1).all()) else _nucleus(probs, top_p)
    # multinomial and Gumbel noise draw one exponential a row *and token*: more than half of a tiny model's decode time.
    cdf = kept.cumsum(-1)
    drawn = torch.searchsorted(cdf, uniforms[:, None] * cdf[:, -1:], right=True)[:, 0].clamp_(max=probs.shape[1] - 1)
    greedy = temperature <= 0
    tokens = torch.where(greedy, probs.argmax(-1), drawn) if bool(greedy.any()) else drawn
    return tokens, probs.gather(1, tokens[:, None])[:, 0].clamp_min(1e-30).log()


def _nucleus(probs: Tensor, top_p: Tensor) -> Tensor:
    """Zero the tail beyond the smallest set whose mass reaches top_p (Holtzman et al. 2020, arXiv 1904.09751)."""
    ordered, order = probs.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probs).scatter(1, order, ordered.masked_fill(before >= top_p[:, None], 0.0))


class SlotDecoder:
    """Decoding with a `RaggedPolicy`.

    A parked trajectory gives up its slot if new ones wait for it and nothing else can go on: an agent's second
    conversation may be what the first one waits for. When it comes back, all of its tokens are prefilled.

    Args:
        slots: trajectories that are live (decoded or parked) at once.
        prefix: tokens with which (nearly) all prompts begin, computed once for each version of the weights. A prompt
            with another beginning waits until the slots are empty; the prefix is then cut to the shared part. None:
            the beginning that the first prompts share.
        replaceable: whether that beginning also takes the place of a ``prefix`` that no prompt had so far, as where an
            environment makes other prompts. A run and its resume may then differ by rounding.
        stop_token_ids: sampling one of these ends a turn.
    """

    def __init__(
        self,
        policy: RaggedPolicy,
        *,
        slots: int,
        prefix: Sequence[int] | None,
        stop_token_ids: Sequence[int],
        version: int = 0,
        replaceable: bool = True,
    ) -> None:
        self.policy, self.slots = policy, slots
        self.prefix = tuple(prefix or ())
        self._settled = prefix is not None and not replaceable  # the prefix is not replaced any more, only cut
        self.version = version
        self.active = 0  # the number of trajectories that are being decoded
        self._device = policy.device
        self._cache = Cache(min(slots, ROWS), 256)
        self._prefix_cache = Cache(1, 1)
        self._prompts = Prompts(slots, self._device)
        self._above_active: list[Above] | None = None  # of the slots that are being decoded; None: they have changed
        self._slot: dict[str, int] = {}  # of each live trajectory
        self._request: list[Request | None] = [None] * slots  # a slot's latest; None: the slot is free
        self._versions: list[list[tuple[int, int]]] = [[]] * slots  # a turn's token number, the version from there on
        self._prefix_stale = True
        self._stop = torch.zeros(policy.model.config.vocab_size, dtype=torch.bool)
        self._stop[list(stop_token_ids)] = True
        self._stop = self._stop.to(self._device)
        self._counts = torch.zeros(5, slots, dtype=torch.long, device=self._device)
        self._length = self._counts[0]  # own tokens in the cache
        self._last = self._counts[1]  # sampled, not yet in the cache
        self._count = self._counts[2]  # sampled in this turn
        self._limit = self._counts[3]
        self._prompt = self._counts[4]  # the row of its prompt in `_prompts`
        self._temperature, self._top_p = self._shape = torch.zeros(2, slots, device=self._device)
        self._tokens = torch.zeros(slots, 64, dtype=torch.long, device=self._device)  # of a turn, as the two below
        self._logprobs = torch.zeros(slots, 64, device=self._device)
        self._uniforms = torch.zeros(slots, 64, device=self._device)

    def _reserve_turn(self, tokens: int) -> None:
        """Make room for turns of that many tokens; stored tokens are kept."""
        old = self._tokens.shape[1]
        if tokens > old:
            more = (0, max(tokens, 2 * old) - old)
            self._tokens, self._logprobs = pad(self._tokens, more), pad(self._logprobs, more)
            self._uniforms = pad(self._uniforms, more)

    def admissible(self, waiting: Sequence[Request]) -> list[Request]:
        """The waiting requests that can be admitted now."""
        known = [request for request in waiting if request.session in self._slot]
        fresh = [request for request in waiting if request.session not in self._slot]
        size = len(self.prefix)
        strangers = [each for each in fresh if len(each.ids) <= size or each.ids[:size] != self.prefix]
        if fresh and not self._settled and (strangers or not size):
            self._share(fresh)
            strangers = []
        if not known and not self.active:  # parked trajectories make room: all of them for a prompt without the prefix
            missing = max(0, len(fresh) - (self.slots - len(self._slot)))
            for session in list(self._slot)[: None if strangers else missing]:
                self.release(session)
        if strangers and not self._slot:
            self._share(fresh, self.prefix)
            strangers = []
        if strangers:  # admit no new ones until the slots are empty, then cut the prefix
            return known
        return known + fresh[: self.slots - len(self._slot)]

    def _share(self, fresh: Sequence[Request], most: Sequence[int] | None = None) -> None:
        """Let the prefix be what these requests share, and no more than ``most``."""
        ids = [request.ids for request in fresh]
        self.prefix = fresh[0].ids[: common_prefix(ids if most is None else [*ids, (*most, -1)])]
        self._prefix_stale = True
        self._prompts.forget()

    @torch.inference_mode()
    def admit(self, requests: Sequence[Request]) -> Finished:
        """Prefill the new tokens of these trajectories and sample their first tokens."""
        self._refresh_prefix()
        self._seat(requests)
        self._gather([self._slot[request.session] for request in requests])
        first, self.active = self.active, self.active + len(requests)
        requests = sorted(requests, key=lambda request: self._slot[request.session])
        new = [self._unseen(request) for request in requests]
        lengths = [len(ids) for ids in new]
        rows = torch.arange(first, self.active, device=self._device)
        history = self._length[first : self.active].clone()
        self._cache.reserve(int((history + torch.tensor(lengths, device=self._device)).max()) + 1)
        self._reserve_turn(max(request.params.max_tokens for request in requests))
        self._start_turns(first, requests)
        logits = self._prefill(self._cache, rows, history, new, self._above(first, self.active))
        self._length[first : self.active] += torch.tensor(lengths, device=self._device)
        return self._append(rows, logits)

    def _seat(self, requests: Sequence[Request]) -> None:
        """Give slots to new trajectories, and compute the prompts that several of them begin with."""
        fresh = [request for request in requests if request.session not in self._slot]
        self._settled = True
        size, prompts = len(self.prefix), self._prompts
        rows, new = prompts.hold([request.ids[size:-1] for request in fresh])
        for request, row in zip(fresh, rows, strict=True):
            self._slot[request.session] = slot = self._request.index(None)
            self._request[slot] = request
            self._length[slot], self._prompt[slot] = 0, row
        last = max(self._slot.values())
        self._cache.reserve(1, min(self.slots, 1 << last.bit_length()))
        for request in requests:
            self._request[self._slot[request.session]] = request
        if new:
            ids = [prompts.ids[row] for row in new]
            lengths = [len(each) for each in ids]
            prompts.cache.reserve(max(lengths), len(prompts.ids))
            at = torch.tensor(new, device=self._device)
            above = [self._prefix_above(len(new))] if size else []
            self._prefill(prompts.cache, at, torch.zeros_like(at), ids, above)

    def _prefill(
        self, cache: Cache, rows: Tensor, history: Tensor, new: Sequence[Sequence[int]], above: Sequence[Above] = ()
    ) -> Tensor:
        """The logits behind the last token of each of the new parts, which are computed in pieces; see `PrefillPlan`.

        A piece has so many tokens of each row that the memory for its masks is bounded.
        """
        longest = max(map(len, new))
        keys = int(history.max()) + longest + sum(each.longest for each in above)
        found, start = torch.empty(0), 0
        while start < longest:
            left = [index for index, ids in enumerate(new) if len(ids) > start]
            width = max(_NARROWEST, PIECE // (len(left) * keys))
            tokens = [new[index][start : start + width] for index in left]
            flat = torch.tensor([*chain.from_iterable(tokens)], dtype=torch.long, device=self._device)
            chosen, before = torch.tensor(left, device=self._device), above
            if len(left) < len(new):
                before = [each.of(chosen) for each in above if bool(each.lengths[chosen].any())]
            plan = PrefillPlan(cache, rows[chosen], history[chosen] + start, [*map(len, tokens)], before)
            logits = self.policy.forward(flat, plan.positions, plan, plan.last)
            found = logits if start == 0 else found.index_copy(0, chosen, logits)
            start += width
        return found

    def _prefix_above(self, count: int) -> Above:
        nothing = torch.zeros(count, dtype=torch.long, device=self._device)
        return Above(self._prefix_cache, nothing, nothing + len(self.prefix))

    def _above(self, first: int, last: int) -> list[Above]:
        """What comes before the own tokens of the slots from ``first`` to ``last``."""
        found = [self._prefix_above(last - first)] if self.prefix else []
        rows = self._prompt[first:last]
        lengths = self._prompts.lengths[rows]
        return [*found, Above(self._prompts.cache, rows, lengths)] if bool(lengths.any()) else found

    def _unseen(self, request: Request) -> tuple[int, ...]:
        """The request's ids that are not in a cache yet."""
        slot = self._slot[request.session]
        seen = len(self.prefix) + int(self._prompts.lengths[self._prompt[slot]]) + int(self._length[slot])
        if seen >= len(request.ids):
            raise ValueError(f"session {request.session}: its ids do not continue those of its last turn")
        return request.ids[seen:]

    def _start_turns(self, first: int, requests: Sequence[Request]) -> None:
        """Set up the rows from slot ``first`` on, one for each request."""
        rows = slice(first, first + len(requests))
        params = [request.params for request in requests]
        self._count[rows] = 0
        self._limit[rows] = torch.tensor([p.max_tokens for p in params], device=self._device)
        self._temperature[rows] = torch.tensor([p.temperature for p in params], device=self._device)
        self._top_p[rows] = torch.tensor([p.top_p for p in params], device=self._device)
        uniforms = draw_uniforms(params)
        self._uniforms[rows, : uniforms.shape[1]] = uniforms.to(self._device)
        self._versions[rows] = [[(0, self.version)] for _ in params]

    @torch.inference_mode()
    def step(self) -> Finished:
        """One more token for every active trajectory."""
        self._refresh_prefix()
        rows = torch.arange(self.active, device=self._device)
        lengths = self._length[: self.active]
        if self._above_active is None:
            self._above_active = self._above(0, self.active)
        plan = DecodePlan(self._cache, lengths, self._above_active)
        self._cache.reserve(plan.longest + 1)
        logits = self.policy.forward(self._last[: self.active], plan.positions, plan, rows)
        self._length[: self.active] += 1
        return self._append(rows, logits)

    def _append(self, rows: Tensor, logits: Tensor) -> Finished:
        """Sample a token for each row, and park the rows whose turn ends with it."""
        count = self._count[rows]
        tokens, logprobs = sample(logits, self._uniforms[rows, count], self._temperature[rows], self._top_p[rows])
        self._tokens[rows, count], self._logprobs[rows, count] = tokens, logprobs
        self._last[rows] = tokens
        self._count[rows] = count + 1
        done = self._stop[tokens] | (count + 1 >= self._limit[rows])
        if not bool(done.any()):
            return []
        ended = rows[done].tolist()
        finished = [self._finish(slot) for slot in ended]
        self.active -= len(ended)
        self._gather(ended)
        return finished

    def _finish(self, slot: int) -> tuple[Request, SampledTokens]:
        request, count = self._request[slot], int(self._count[slot])
        assert request is not None
        tokens = self._tokens[slot, :count].tolist()
        finish: Literal["stop", "length"] = "stop" if tokens[-1] in request.params.stop_token_ids else "length"
        logprobs = tuple(self._logprobs[slot, :count].tolist())
        version, versions = _by_token(self._versions[slot], count)
        return request, SampledTokens(tuple(tokens), logprobs, finish, version, versions)

    @torch.inference_mode()
    def release(self, session: str) -> None:
        slot = self._slot.pop(session, None)
        if slot is None:
            return
        self._request[slot] = None
        self._prompts.release(int(self._prompt[slot]))
        if slot < self.active:
            self.active -= 1
            self._gather([slot])

    def _gather(self, chosen: list[int]) -> None:
        """Swap the chosen rows to stand right behind the active ones: to be activated, or because they have ended."""
        self._above_active = None
        region = range(self.active, self.active + len(chosen))
        movers = [slot for slot in chosen if slot not in region]
        self._swap(sorted(set(region) - set(chosen)), movers)

    def _swap(self, first: list[int], second: list[int]) -> None:
        """Exchange slots pairwise; all named slots are different."""
        if not first:
            return
        a = torch.tensor(first, device=self._device)
        b = torch.tensor(second, device=self._device)
        both, swapped = torch.cat([a, b]), torch.cat([b, a])
        self._cache.swap(both, swapped, int(self._length[both].max()))
        for by_slot in (self._counts, self._shape):
            by_slot[:, both] = by_slot[:, swapped]
        for store in (self._tokens, self._logprobs, self._uniforms):
            store[both] = store[swapped]
        for i, j in zip(first, second, strict=True):
            self._request[i], self._request[j] = self._request[j], self._request[i]
            self._versions[i], self._versions[j] = self._versions[j], self._versions[i]
            for slot in (i, j):
                if (request := self._request[slot]) is not None:
                    self._slot[request.session] = slot

    def weights_changed(self, version: int) -> None:
        """Turns under way keep their old keys and values; their log-probs stay those of the sampling distribution."""
        self.version = version
        self._prefix_stale = True
        self._prompts.forget()
        for slot, count in enumerate(self._count[: self.active].tolist()):
            self._versions[slot].append((count, version))

    def _refresh_prefix(self) -> None:
        if not self._prefix_stale:
            return
        self._prefix_stale, self._above_active = False, None
        if self.prefix:
            row = torch.zeros(1, dtype=torch.long, device=self._device)
            self._prefix_cache.reserve(len(self.prefix))
            self._prefill(self._prefix_cache, row, row, [self.prefix])


def _by_token(changes: Sequence[tuple[int, int]], count: int) -> tuple[int, tuple[int, ...]]:
    """The version of a turn's first token, and that of each of its ``count`` tokens if they differ, else none."""
    ends = [*(start for start, _ in changes[1:]), count]
    runs = ((version,) * (end - start) for (start, version), end in zip(changes, ends, strict=True))
    versions = tuple(chain.from_iterable(runs))
    return versions[0], versions if versions[-1] != versions[0] else ()
