"""Chat formats: how messages become token ids and sampled ids become messages, one module for each model family.

No heavy package is imported here; a format gets its tokenizer as an object.
"""
