"""Chat formats: how messages become token ids and sampled ids become messages, one module a model family.

Nothing heavy is imported here; a format gets its tokenizer as an object.
"""
