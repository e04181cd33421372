"""General helpers, which know nothing of training: seeds, asyncio, threads, interrupts, processors, text."""
