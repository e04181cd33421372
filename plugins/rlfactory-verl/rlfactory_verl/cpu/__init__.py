"""verl on machines without a GPU: its own trainer and vLLM's CPU build, through the extension points of both.

Nothing here runs on a GPU machine: `environment` is asked only for CPU runs, and `platform` acts only where
``VERL_PLATFORM=cpu``.
"""
