"""The agent loop that verl's rollout worker runs for each trajectory; it plays our rollout."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from rlfactory_core.reporting import StoredTrajectory
from rlfactory_core.rollout import vision_of
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.output import TrajectoryOutput, agent_loop_outputs
from rlfactory_verl.pool import POOL_FIELD
from rlfactory_verl.rollout_request import FIELD
from rlfactory_verl.sampler import ServerSampler
from rlfactory_verl.worker_runtime import worker_runtime


class RolloutAgentLoop(AgentLoopBase):
    """Rolls out and scores one attempt; verl makes a loop for each attempt."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[TrajectoryOutput]:
        """Ignores verl's ``sampling_params``: the request says how to sample, as in the local engine."""
        shared = worker_runtime(str(self.data_config[FIELD]), self.tokenizer, self.data_config.get(POOL_FIELD))
        sampler = ServerSampler(self.server_manager, VerlConfig.of(shared.config).sample_deadline_s)
        attempt = int(kwargs["session_id"])
        request, trajectory = await shared.play(kwargs[FIELD], attempt, sampler)
        chat = shared.tasks.chat
        messages = request.sample.messages
        prompt = list(chat.initial_ids(messages, trajectory.tools)) if not trajectory.turns else []
        vision = vision_of(chat)
        now = int(kwargs["global_steps"])  # the version for a trajectory that sampled nothing
        return agent_loop_outputs(
            StoredTrajectory.of(trajectory, chat.decode),
            prompt,
            request.position,
            pad_id=chat.stop_token_ids[0],
            oldest=now if sampler.oldest is None else sampler.oldest,
            newest=now if sampler.newest is None else sampler.newest,
            images=None if vision is None else vision.images_in(messages),
        )
