"""What has to hold of a task before it is worth a GPU: one file a check."""
