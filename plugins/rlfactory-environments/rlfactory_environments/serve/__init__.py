"""``rlfactory serve``: a task of rlfactory as an environment for other training libraries."""
