"""The embedded engine: GRPO for any Hugging Face causal LM in this process, on CPU cores or one GPU.

From the bottom up: `model` runs a causal LM, without padding if the model allows it; `decoding` samples tokens;
`training` computes updates, saves checkpoints and holds the training loop; `tiny` builds the default model; `local_run`
opens the parts of a run in one process, and `engine` starts the processes.
"""
