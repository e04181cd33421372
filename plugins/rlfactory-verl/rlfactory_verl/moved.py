"""The policy-moved proof of this engine: vLLM scores sequences of the batch just trained, through its own path."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.workers.utils.padding import response_from_nested

from rlfactory_core.errors import TrainingError
from rlfactory_core.images import picture
from rlfactory_core.training import Moved, difference
from rlfactory_verl.anchor import OLD
from rlfactory_verl.replay import extra_fields
from rlfactory_verl.rollout_request import IMAGES

ROWS = 8  # sequences that are compared
UPDATES = 20  # after which a policy that has not moved measurably is left alone


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A trained sequence; the log-probs are those of its sampled tokens, in order."""

    ids: list[int]
    places: list[int]  # of the sampled tokens in ``ids``
    sampled: list[float]  # by vLLM, when it sampled them
    old: list[float]  # by the trainer, before the update
    new: list[float]  # by the trainer, after it
    images: Sequence[str] = ()  # the hashes of those that the ids show


class PolicyMovedProof:
    """Looks at the first updates of a process until the policy has moved measurably.

    ``updated`` is called after an update, ``synced`` after vLLM has got the weights.

    Args:
        before: the field with the trainer's log-probs before the update.
    """

    def __init__(self, before: str = OLD) -> None:
        self._before = before
        self._rows: list[ScoredRow] = []
        self._updates = 0
        self.found: Moved | None = None
        self.over = False

    def updated(self, actor: Any, batch: KVBatchMeta, limit: int) -> None:
        """
        Args:
            actor: verl's worker group, which scores the whole batch once more.
            limit: the most tokens of a sequence in vLLM, which has to sample one more than it scores.
        """
        self._updates += 1
        batch.extra_info.update({"calculate_entropy": True, "compute_loss": False})
        actor.compute_log_prob(batch)
        self._rows = scored_rows(batch, limit - 1, self._before)

    def synced(self, client: Any, step: int) -> None:
        """
        Args:
            client: of verl's inference servers.

        Raises:
            TrainingError: the servers have the old weights.
        """
        if not any(row.places for row in self._rows):
            return
        now = asyncio.run(prompt_logprobs(client, self._rows))
        self.over = self._updates >= UPDATES
        if now is None:
            return
        old, new = ([value for row in self._rows for value in getattr(row, name)] for name in ("old", "new"))
        before = difference([value for row in self._rows for value in row.sampled], old)
        self.found = Moved.of(step, now, old, new, before)
        self.found.check()
        self.over = self.over or self.found.measurable


def scored_rows(batch: KVBatchMeta, length: int, before: str) -> list[ScoredRow]:
    """The first ``length`` tokens of a few rows of a batch that the actor has scored again after its update."""
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)][:ROWS]
    fields = ["prompts", "responses", "response_mask", "log_probs", before, "rollout_log_probs"]
    found = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
    found["log_probs"] = response_from_nested(found["log_probs"], found["response_mask"])
    rows = []
    for number, extra in enumerate(extra_fields(keys, batch.partition_id)):
        prompt, response, mask, new, old, sampled = (found[name].unbind()[number].tolist() for name in fields)
        own = [place for place, kept in enumerate(mask[: max(0, length - len(prompt))]) if kept]
        places = [len(prompt) + place for place in own]
        ids = [*prompt, *response][:length]
        sampled, old, new = ([each[p] for p in own] for each in (sampled, old, new))
        rows.append(ScoredRow(ids, places, sampled, old, new, extra[IMAGES]))
    return rows


async def prompt_logprobs(client: Any, rows: Sequence[ScoredRow]) -> list[float] | None:
    """vLLM's log-probs of the rows' sampled tokens, one row after the other; None if it gave an answer up.

    Raises:
        TrainingError: vLLM's processor makes more or fewer tokens of an image than the trainer has.
    """
    asked = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
    answers = await asyncio.gather(
        *(
            client.generate(
                request_id=f"policy-moved-{number}",
                prompt_ids=row.ids,
                sampling_params=dict(asked),
                **({"image_data": [picture(name) for name in row.images]} if row.images else {}),
            )
            for number, row in enumerate(rows)
        )
    )
    if not all("prompt_logprobs" in answer.extra_fields for answer in answers):
        return None
    scored = [answer.extra_fields["prompt_logprobs"] for answer in answers]
    for row, found in zip(rows, scored, strict=True):
        if len(found) != len(row.ids):
            raise TrainingError(
                f"vLLM sees {len(found)} tokens in a sequence with {len(row.images)} images, and the trainer "
                f"{len(row.ids)}: their image processors differ. Use a vLLM and a transformers that belong together."
            )
    # The first one belongs to the second token.
    return [found[place - 1][0] for row, found in zip(rows, scored, strict=True) for place in row.places]
