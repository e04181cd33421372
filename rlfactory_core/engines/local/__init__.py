"""The embedded engine: GRPO for any Hugging Face causal LM in this process, on CPU cores or one GPU.

From the bottom up: `attention` and `plans` run a model without padding, `cache` and `decoder` sample, `policy` puts a
model behind one face (ragged or padded, as `probe` decided), `sampler` is its asynchronous side, `loss`, `optim` and
`update` learn, `checkpoint` saves, `tiny_model` and `warmstart` make the default model, `trainer` is the loop and
`engine` the entrance.
"""
