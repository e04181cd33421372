"""The core's own engines, rewards, chat formats and checks, registered through the same hooks as a plugin's.

Each is imported when it is first used.
"""

from __future__ import annotations

from rlfactory_core.hookspecs import Register, hookimpl
from rlfactory_core.plugins import lazy

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("tools", lazy.Lazy("rlfactory_core.tasks.generic:GenericTask"))


@hookimpl
def rlfactory_envs(register: Register) -> None:
    register("tool", lazy.Lazy("rlfactory_core.rollout:ToolEnv"))


@hookimpl
def rlfactory_tool_managers(register: Register) -> None:
    register("default", lazy.Lazy("rlfactory_core.tools.manager:DefaultToolManager"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("exact_match", lazy.Lazy("rlfactory_core.rewards.scorers:ExactMatch"))
    register("f1", lazy.Lazy("rlfactory_core.rewards.scorers:F1"))
    register("squad_em", lazy.Lazy("rlfactory_core.rewards.scorers:SquadEM"))
    register("squad_f1", lazy.Lazy("rlfactory_core.rewards.scorers:SquadF1"))
    register("env_reward", lazy.Lazy("rlfactory_core.rewards.scorers:EnvReward"))
    register("overlong", lazy.Lazy("rlfactory_core.rewards.scorers:Overlong"))
    register("format", lazy.Lazy("rlfactory_core.rewards.scorers:Format"))


@hookimpl
def rlfactory_verifiers(register: Register) -> None:
    register("math", lazy.Lazy("rlfactory_core.rewards.maths.scorer:Math"))


@hookimpl
def rlfactory_chat_formats(register: Register) -> None:
    # The first whose `matches` says so is chosen: the more special before the more general.
    families = "rlfactory_core.chat.families"
    register("minimax-m2", lazy.LazyChatFormat(f"{families}.xml_calls:MinimaxFormat"))
    register("deepseek-v3.2", lazy.LazyChatFormat(f"{families}.xml_calls:DsmlFormat"))
    register("hunyuan-v3", lazy.LazyChatFormat(f"{families}.xml_calls:HunyuanFormat"))
    register("seed-oss", lazy.LazyChatFormat(f"{families}.xml_calls:SeedOssFormat"))
    register("kimi-k2", lazy.LazyChatFormat(f"{families}.kimi:KimiFormat"))
    register("lfm2", lazy.LazyChatFormat(f"{families}.lists:Lfm2Format"))
    register("pythonic", lazy.LazyChatFormat(f"{families}.lists:PythonicFormat"))
    register("gemma-4", lazy.LazyChatFormat(f"{families}.gemma4:Gemma4Format"))
    register("xlam", lazy.LazyChatFormat(f"{families}.lists:XlamFormat"))
    register("qwen3-coder", lazy.LazyChatFormat(f"{families}.qwen3:Qwen3CoderFormat"))
    register("qwen2.5", lazy.LazyChatFormat(f"{families}.qwen3:Qwen25Format"))
    register("qwen3", lazy.LazyChatFormat(f"{families}.qwen3:Qwen3Format"))
    register("llama3", lazy.LazyChatFormat(f"{families}.llama3:Llama3Format"))
    register("llama4", lazy.LazyChatFormat(f"{families}.llama3:Llama4Format"))
    register("mistral", lazy.LazyChatFormat(f"{families}.mistral:MistralFormat"))
    register("deepseek-v3", lazy.LazyChatFormat(f"{families}.deepseek:DeepseekFormat"))
    register("glm-4.5", lazy.LazyChatFormat(f"{families}.glm:GlmFormat"))
    register("gpt-oss", lazy.LazyChatFormat(f"{families}.gpt_oss:GptOssFormat"))
    register("hermes", lazy.LazyChatFormat(f"{families}.hermes:HermesFormat"))


@hookimpl
def rlfactory_advantages(register: Register) -> None:
    algo = "rlfactory_core.algo"
    register("grpo", lazy.Lazy(f"{algo}.advantages:GRPO"))
    register("dr_grpo", lazy.Lazy(f"{algo}.advantages:DR_GRPO"))
    register("rloo", lazy.Lazy(f"{algo}.advantages:RLOO"))
    register("turn_grpo", lazy.Lazy(f"{algo}.turn_advantages:turn_grpo"))
    register("turn_rloo", lazy.Lazy(f"{algo}.turn_advantages:turn_rloo"))
    register("gigpo", lazy.Lazy(f"{algo}.turn_advantages:gigpo"))


@hookimpl
def rlfactory_loss_functions(register: Register) -> None:
    losses = "rlfactory_core.algo.losses"
    register("ppo", lazy.Lazy(f"{losses}.ppo:ppo"))
    register("gspo", lazy.Lazy(f"{losses}.gspo:gspo"))
    register("cispo", lazy.Lazy(f"{losses}.cispo:cispo"))
    register("sapo", lazy.Lazy(f"{losses}.sapo:sapo"))
    # With keys of their own, see `rlfactory_core.algo.methods`.
    register("dapo", lazy.Lazy(f"{losses}.ppo:ppo"))
    register("dr_grpo", lazy.Lazy(f"{losses}.ppo:ppo"))


@hookimpl
def rlfactory_prompt_samplers(register: Register) -> None:
    register("uniform", lazy.Lazy("rlfactory_core.algo.prompts:UniformPrompts"))
    register("difficulty", lazy.Lazy("rlfactory_core.algo.difficulty:DifficultyPrompts"))


@hookimpl
def rlfactory_engines(register: Register) -> None:
    register("local", lazy.Lazy("rlfactory_core.engines.local.engine:LocalEngine"))
