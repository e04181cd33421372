from .loading import load_tokenizer as load_tokenizer
from .loading import quiet_transformers as quiet_transformers
