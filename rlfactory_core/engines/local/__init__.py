"""The embedded engine: any Hugging Face causal LM in this process, on CPU cores or one GPU.

From the bottom up: `model` runs a causal LM, without padding if the model allows it; `decoding` samples tokens;
`learning` computes updates; `tiny` builds a task's own model; `workers` and `processes` have the collectives of several
processes; `engine` puts them behind the interface of `engines.base`. The training loop is in `rlfactory_core.training`.
"""
