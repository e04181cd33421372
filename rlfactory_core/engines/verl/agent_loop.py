"""verl's agent loop, with our rollout inside: what a verl rollout worker runs for each trajectory."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from rlfactory_core.engines.verl.output import TrajectoryOutput, agent_loop_output
from rlfactory_core.engines.verl.pool import POOL_FIELD
from rlfactory_core.engines.verl.sampler import ServerSampler
from rlfactory_core.engines.verl.work import FIELD
from rlfactory_core.engines.verl.worker_runtime import worker_runtime
from rlfactory_core.reporting.trajectories import StoredTrajectory


class RolloutAgentLoop(AgentLoopBase):
    """Rolls out and scores one attempt; verl makes one of these for each."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> TrajectoryOutput:
        """verl's own ``sampling_params`` are not used: how to sample stands in the work, as in the local engine."""
        shared = worker_runtime(str(self.data_config[FIELD]), self.tokenizer, self.data_config.get(POOL_FIELD))
        sampler = ServerSampler(self.server_manager, shared.config.verl.sample_deadline_s)
        attempt = int(kwargs["session_id"])
        work, trajectory = await shared.play(kwargs[FIELD], attempt, sampler)
        chat = shared.runtime.chat
        prompt = list(chat.initial_ids(work.sample.messages, trajectory.tools)) if not trajectory.turns else []
        now = int(kwargs["global_steps"])  # a trajectory that sampled nothing is as old as its step
        return agent_loop_output(
            StoredTrajectory.of(trajectory, chat.decode),
            prompt,
            pad_id=chat.stop_token_ids[0],
            oldest=now if sampler.oldest is None else sampler.oldest,
            newest=now if sampler.newest is None else sampler.newest,
            note=f"{work.how.name if work.how else 'train'}:{work.session}",
        )
