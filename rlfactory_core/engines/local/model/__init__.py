"""A Hugging Face causal LM as this engine runs it: loading, ragged attention, its probe, LoRA."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
