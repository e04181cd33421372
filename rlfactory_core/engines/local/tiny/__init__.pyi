from .building import tokenizer_of as tokenizer_of
from .folder import tiny_model_folder as tiny_model_folder
from .prebuilt import prebuilt_model as prebuilt_model
