"""The verl engine: verl's trainer and vLLM's servers on Ray, with this package's rollout, tools and rewards inside.

What stands where: `rules` refuses what verl cannot do, `overrides` compiles a run's configuration to verl's, `compose`
lets verl's own hydra configuration check it, `launch` starts Ray and waits, `task_runner` and `trainer` run in verl's
driver actor, `agent_loop` in its rollout workers, `cpu/` holds what a machine without a GPU needs.
"""
