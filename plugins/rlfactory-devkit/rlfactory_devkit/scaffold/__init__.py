"""``rlfactory new``: a plugin's first files, made from templates."""
