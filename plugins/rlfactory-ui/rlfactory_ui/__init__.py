"""`rlfactory ui`: runs in the browser. The run's folder is the only state; commands start as processes of their own."""
