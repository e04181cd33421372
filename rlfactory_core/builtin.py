"""What the core itself gives, through the same hooks as any plugin. Each part is imported when it is first made."""

from __future__ import annotations

from rlfactory_core import lazy
from rlfactory_core.deprecation import moved
from rlfactory_core.hookspecs import Register, hookimpl

RLFACTORY_API = ">=1,<2"
VERL = "rlfactory_core.engines.verl"

LAZY = ("Lazy", "LazyReward", "LazyChatFormat", "LazyEngine")
__getattr__ = moved(__name__, {name: f"rlfactory_core:{name}" for name in LAZY}, since="1.1", until="2.0")


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("tools", lazy.Lazy("rlfactory_core.generic_task:GenericTask"))


@hookimpl
def rlfactory_envs(register: Register) -> None:
    register("tool", lazy.Lazy("rlfactory_core.env:ToolEnv"))


@hookimpl
def rlfactory_tool_managers(register: Register) -> None:
    register("default", lazy.Lazy("rlfactory_core.tools.manager:DefaultToolManager"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("exact_match", lazy.Lazy("rlfactory_core.rewards.scorers:ExactMatch"))
    register("f1", lazy.Lazy("rlfactory_core.rewards.scorers:F1"))
    register("format", lazy.Lazy("rlfactory_core.rewards.scorers:Format"))


@hookimpl
def rlfactory_chat_formats(register: Register) -> None:
    # The first whose `matches` says so is chosen: the more special before the more general.
    chat = "rlfactory_core.chat"
    register("qwen3-coder", lazy.LazyChatFormat(f"{chat}.qwen3_coder:Qwen3CoderFormat"))
    register("qwen2.5", lazy.LazyChatFormat(f"{chat}.qwen2_5:Qwen25Format"))
    register("qwen3", lazy.LazyChatFormat(f"{chat}.qwen3:Qwen3Format"))
    register("llama3", lazy.LazyChatFormat(f"{chat}.llama3:Llama3Format"))
    register("mistral", lazy.LazyChatFormat(f"{chat}.mistral:MistralFormat"))
    register("deepseek-v3", lazy.LazyChatFormat(f"{chat}.deepseek:DeepseekFormat"))
    register("glm-4.5", lazy.LazyChatFormat(f"{chat}.glm:GlmFormat"))
    register("gpt-oss", lazy.LazyChatFormat(f"{chat}.gpt_oss:GptOssFormat"))
    register("hermes", lazy.LazyChatFormat(f"{chat}.hermes:HermesFormat"))


@hookimpl
def rlfactory_engines(register: Register) -> None:
    register("local", lazy.Lazy("rlfactory_core.engines.local.engine:LocalEngine"))
    register("verl", lazy.LazyEngine(f"{VERL}.engine:VerlEngine", f"{VERL}.rules:adapt_defaults"))
