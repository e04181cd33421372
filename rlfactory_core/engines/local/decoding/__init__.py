"""Sampling tokens: decoders, and the asynchronous sampler in front of them."""
