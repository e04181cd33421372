from .loading import load_tokenizer as load_tokenizer
