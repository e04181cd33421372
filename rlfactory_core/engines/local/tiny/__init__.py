"""The default model of a run without `--model`: built from the task's recipe, warm-started, cached."""
