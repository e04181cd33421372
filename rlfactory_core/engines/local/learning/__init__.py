"""Updates: optimizer, the loss of a micro-batch on a model, and PPO's critic."""
