"""A Hugging Face causal LM as this engine runs it: loading, ragged attention, its probe, LoRA."""
