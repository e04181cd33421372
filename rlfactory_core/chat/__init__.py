"""Chat formats: how messages become token ids and sampled ids become messages.

A model family is a file in `families` with a subclass of `TemplateFormat`, and a line of `rlfactory_chat_formats` in
`builtin`; a plugin registers one through the same hook. No heavy package is imported here; a format gets its tokenizer
as an object.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
