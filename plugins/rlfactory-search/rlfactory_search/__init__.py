"""Questions that a policy learns to answer by searching: tasks, retrievers and a retrieval server for rlfactory."""
