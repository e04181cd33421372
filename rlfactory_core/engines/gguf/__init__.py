"""Models in llama.cpp's format GGUF: read into a Hugging Face folder, and written from one.

To add an architecture to what is written, add its line to `writing.ARCHITECTURES`; to read or write the tokenizers of a
further family, add its pre-tokenizer to `splits.SPLITS`.
"""
