"""The training loop: rollouts, loss, optimiser, update, checkpoints, worker processes."""
