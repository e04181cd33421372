"""What the core itself gives, through the same hooks as any plugin. Each part is imported when it is first made."""

from __future__ import annotations

from rlfactory_core.hookspecs import Register, hookimpl
from rlfactory_core.lazy import Lazy, LazyChatFormat, LazyEngine

RLFACTORY_API = ">=1,<2"
VERL = "rlfactory_core.engines.verl"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("tools", Lazy("rlfactory_core.generic_task:GenericTask"))


@hookimpl
def rlfactory_envs(register: Register) -> None:
    register("tool", Lazy("rlfactory_core.env:ToolEnv"))


@hookimpl
def rlfactory_tool_managers(register: Register) -> None:
    register("default", Lazy("rlfactory_core.tools.manager:DefaultToolManager"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("exact_match", Lazy("rlfactory_core.rewards.scorers:ExactMatch"))
    register("f1", Lazy("rlfactory_core.rewards.scorers:F1"))
    register("format", Lazy("rlfactory_core.rewards.scorers:Format"))


@hookimpl
def rlfactory_chat_formats(register: Register) -> None:
    # The first whose `matches` says so is chosen: the more special before the more general.
    chat = "rlfactory_core.chat"
    register("qwen3-coder", LazyChatFormat(f"{chat}.qwen3_coder:Qwen3CoderFormat"))
    register("qwen2.5", LazyChatFormat(f"{chat}.qwen2_5:Qwen25Format"))
    register("qwen3", LazyChatFormat(f"{chat}.qwen3:Qwen3Format"))
    register("llama3", LazyChatFormat(f"{chat}.llama3:Llama3Format"))
    register("mistral", LazyChatFormat(f"{chat}.mistral:MistralFormat"))
    register("deepseek-v3", LazyChatFormat(f"{chat}.deepseek:DeepseekFormat"))
    register("glm-4.5", LazyChatFormat(f"{chat}.glm:GlmFormat"))
    register("gpt-oss", LazyChatFormat(f"{chat}.gpt_oss:GptOssFormat"))
    register("hermes", LazyChatFormat(f"{chat}.hermes:HermesFormat"))


@hookimpl
def rlfactory_engines(register: Register) -> None:
    register("local", Lazy("rlfactory_core.engines.local.engine:LocalEngine"))
    register("verl", LazyEngine(f"{VERL}.engine:VerlEngine", f"{VERL}.rules:adapt_defaults"))
