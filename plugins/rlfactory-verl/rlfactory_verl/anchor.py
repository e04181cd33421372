"""The policy to which the losses of older samples are relative: as in the embedded engine, the one that sampled."""

from __future__ import annotations

import transfer_queue as tq
from transfer_queue import KVBatchMeta

OLD = "old_log_probs"  # to which verl's losses are relative
BEFORE_UPDATE = "log_probs_before_update"


def anchor_to_sampler(batch: KVBatchMeta) -> KVBatchMeta:
    """Give verl's losses the log-probs of the policy that sampled each token; verl's own stay as `BEFORE_UPDATE`.

    verl's ``bypass_mode`` does it, too, but leaves out the pass that gives the entropy and what the policy-moved proof
    compares.
    """
    found = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[OLD, "rollout_log_probs"])
    found[BEFORE_UPDATE], found[OLD] = found[OLD], found.pop("rollout_log_probs")
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=found)
