"""The task of ``rlfactory run --plugin judge``: a tiny policy that learns from a tiny judge."""
